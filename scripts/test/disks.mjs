import { join } from "node:path";
import { root } from "../setup/command.mjs";
import { installPrograms } from "../setup/programs.mjs";
import { prepareDevices, prepareGuest, vitestInGuest, whereGuestBoots } from "./rdma.mjs";
import { runVitest } from "./vitest.mjs";

/** @typedef {import("./outcome.mjs").Outcome} Outcome */

/** Installs the programs that `packages/nvme/test` starts, from Debian's packages. */
export function installClientsOfDisks() {
  return installPrograms("disks cannot be tested with clients of others", {
    nbdinfo: "libnbd-bin",
    nbdcopy: "libnbd-bin",
    nbdsh: "python3-libnbd",
    nbdkit: "nbdkit",
    fio: "fio",
    "qemu-io": "qemu-utils",
    "qemu-img": "qemu-utils",
    "qemu-storage-daemon": "qemu-system-common",
    "mkfs.ext4": "e2fsprogs",
    "mkfs.xfs": "xfsprogs",
  });
}

export function runClientsOfDisks() {
  return runVitest({
    name: "disks-clients",
    args: ["packages/nvme/test/nbd-clients", "packages/nvme/test/mirror"],
    env: { CINNABAR_DISK_CLIENTS: "1" },
  });
}

/** Makes the guest and its programs, and installs what Linux needs to use disks of others. */
export async function prepareKernelOfDisks() {
  await installPrograms("disks cannot be tested with Linux as their host", {
    nvme: "nvme-cli",
    fio: "fio",
    "nbd-client": "nbd-client",
    "mkfs.ext4": "e2fsprogs",
    sfdisk: "fdisk",
  });
  await prepareDevices();
}

/** Makes the guest, and installs what Linux needs to mirror disks of others. */
export async function prepareMirrorOfKernel() {
  await installPrograms("disks cannot be mirrored by Linux", {
    mdadm: "mdadm",
    nvme: "nvme-cli",
    fio: "fio",
    "nbd-client": "nbd-client",
    "mkfs.ext4": "e2fsprogs",
  });
  await prepareGuest();
}

/**
 * The tests of packages/nvme with the kernel of the guest, on either side.
 *
 * @param {readonly string[]} args test files; none for all
 * @returns {Promise<Outcome>}
 */
export function runDisksOfKernel(args) {
  return runOnKernel("disks-kernel", args.length > 0 ? args : ["packages/nvme/test/kernel-"]);
}

/** The tests of a disk on two machines by md RAID1, with the kernel of the guest. */
export function runMirrorOfKernel() {
  return runOnKernel("disks-mirror", ["packages/nvme/test/md-mirror"]);
}

/**
 * @param {string} name of the report's folder
 * @param {readonly string[]} args test files
 */
function runOnKernel(name, args) {
  return whereGuestBoots("NO TEST WITH LINUX AS HOST OF DISKS", () =>
    vitestInGuest({
      folder: join(root, "build", "reports", name),
      timeoutMs: 30 * 60_000,
      // More threads than the operations that tests have under way at a disk with a lost target.
      env: ["CINNABAR_KERNEL_DISKS=1", "UV_THREADPOOL_SIZE=16"],
      args,
    }),
  );
}

/** The tests of packages/nvme that mutate messages, in their long form. */
export function fuzzDisks() {
  return runVitest({
    name: "disks-fuzz",
    args: [
      "packages/nvme/src/nbd/fuzz",
      "packages/nvme/src/tcp/fuzz",
      "packages/nvme/src/authentication/fuzz",
      "--testTimeout=7200000",
    ],
    env: { CINNABAR_AMOUNT: "10000000" },
    timeoutMs: 4 * 3600_000,
  });
}
