import { installPrograms } from "../setup/programs.mjs";
import { runVitest } from "./vitest.mjs";

/** Installs the programs that `packages/nvme/test` starts, from Debian's packages. */
export function installClientsOfDisks() {
  return installPrograms("disks cannot be tested with clients of others", {
    nbdinfo: "libnbd-bin",
    nbdcopy: "libnbd-bin",
    "qemu-io": "qemu-utils",
    "qemu-img": "qemu-utils",
    "mkfs.ext4": "e2fsprogs",
  });
}

export function runClientsOfDisks() {
  return runVitest({
    name: "disks-clients",
    args: ["packages/nvme/test/"],
    env: { CINNABAR_DISK_CLIENTS: "1" },
  });
}

/** The tests of packages/nvme that mutate messages, in their long form. */
export function fuzzDisks() {
  return runVitest({
    name: "disks-fuzz",
    args: ["packages/nvme/src/nbd/fuzz", "packages/nvme/src/tcp/fuzz", "--testTimeout=7200000"],
    env: { CINNABAR_FUZZ_MESSAGES: "10000000" },
    timeoutMs: 4 * 3600_000,
  });
}
