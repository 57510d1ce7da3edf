import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { root } from "../../../test/docs/pages.test-support.ts";
import { type BlockDevice, memoryDevice, NvmeTarget, openFileDevice, serveNbd } from "../src/index.ts";
import { addressOf, connect, fio, isGuest, mib, mounted, run, verified } from "./kernel.test-support.ts";

const bytes = 256 * mib;
let folder = "";
let mountPoint = "";

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "cinnabar-kernel-"));
  mountPoint = join(folder, "mnt");
  await mkdir(mountPoint);
});
afterAll(() => rm(folder, { recursive: true }));

const onMemory = async (): Promise<BlockDevice> => memoryDevice({ bytes });
const onFile = (): Promise<BlockDevice> => openFileDevice(join(folder, "disk.img"), { bytes });

/** Makes ext4, copies a tree there, and finds it again when nothing of it is in memory. */
async function useFileSystem(disk: string): Promise<void> {
  await run("mkfs.ext4", "-q", "-F", disk);
  await mounted(disk, mountPoint, async () => {
    await run("cp", "-r", join(root, "docs"), join(root, "src"), mountPoint);
    await run("sync", "-f", mountPoint);
  });
  await run("e2fsck", "-fn", disk);
  await writeFile("/proc/sys/vm/drop_caches", "3");
  await mounted(disk, mountPoint, async () => {
    for (const tree of ["docs", "src"]) await run("diff", "-r", join(root, tree), join(mountPoint, tree));
    // Space that is free again is trimmed.
    await run("rm", "-r", join(mountPoint, "src"));
    await run("fstrim", mountPoint);
    await run("diff", "-r", join(root, "docs"), join(mountPoint, "docs"));
  });
  await run("e2fsck", "-fn", disk);
}

/** Short and long writes, each read back by its checksum. */
async function verify(disk: string): Promise<void> {
  const short = await fio(disk, ...verified, "--rw=randwrite", "--bs=4k", "--iodepth=32", "--size=16M");
  expect(short.read.io_bytes).toBe(16 * mib);
  const mixed = ["--rw=randwrite", "--bsrange=4k-1M", "--iodepth=8", "--size=64M", "--fsync=16"];
  await fio(disk, ...verified, ...mixed);
}

describe.skipIf(!isGuest)("Linux as host of NVMe/TCP", () => {
  it.each([
    ["a file with both digests", onFile, ["--hdr-digest", "--data-digest"]],
    ["memory without digests, on two queues", onMemory, ["-i", "2"]],
  ])("mounts ext4 on %s, and fio verifies", async (_, newDevice, options) => {
    const nqn = "nqn.2026-11.test:mounted";
    await using device = await newDevice();
    const subsystems = [{ nqn, namespaces: [device], hosts: "any" as const }];
    await using target = await NvmeTarget.listen({ subsystems, port: 0 });
    const { port } = target.address;
    const { records } = JSON.parse(await run("nvme", "discover", ...addressOf(port), "-o", "json"));
    expect(records).toMatchObject([{ trtype: "tcp", subnqn: nqn, trsvcid: `${port}`, traddr: "127.0.0.1" }]);
    await using host = await connect(nqn, [port], options);
    expect(await run("blockdev", "--getsize64", "--getpbsz", host.disk)).toBe(`${bytes}\n4096\n`);
    await verify(host.disk);
    await useFileSystem(host.disk);
  });

  it("compares, zeroes and discards blocks by nvme-cli", async () => {
    const nqn = "nqn.2026-11.test:commands";
    await using device = memoryDevice({ bytes: 64 * mib });
    const subsystems = [{ nqn, namespaces: [device], hosts: "any" as const }];
    await using target = await NvmeTarget.listen({ subsystems, port: 0 });
    await using host = await connect(nqn, [target.address.port]);
    const data = join(folder, "data");
    const ofData = [host.disk, "-z", "8192", "-c", "1", "-s", "16", "-d", data];
    await writeFile(data, Buffer.alloc(8192, 0xab));
    await run("nvme", "write", ...ofData);
    await run("nvme", "flush", host.disk);
    await run("nvme", "compare", ...ofData);
    expect(await device.compare(65_536, Buffer.alloc(8192, 0xab))).toBe(true);
    await run("nvme", "write-zeroes", host.disk, "-s", "16", "-c", "0");
    await expect(run("nvme", "compare", ...ofData)).rejects.toThrow(/compare/i);
    expect(await device.compare(65_536, Buffer.alloc(4096))).toBe(true);
    await run("blkdiscard", host.disk);
    expect(await device.extents(0, device.bytes)).toEqual([{ bytes: device.bytes, kind: "hole" }]);
    const facts = JSON.parse(await run("nvme", "id-ctrl", host.disk.replace(/n\d+$/, ""), "-o", "json"));
    expect(facts).toMatchObject({ subnqn: nqn, vwc: 1 });
  });

  it("is refused where its name is not among those that may connect", async () => {
    const nqn = "nqn.2026-11.test:others";
    await using device = memoryDevice({ bytes: mib });
    await using target = await NvmeTarget.listen({
      subsystems: [{ nqn, namespaces: [device], hosts: ["nqn.2026-11.test:another-host"] }],
      port: 0,
    });
    await expect(connect(nqn, [target.address.port])).rejects.toThrow(/could not add new controller/i);
    expect(target.stats().controllers).toBe(0);
  });
});

describe.skipIf(!isGuest)("Linux as client of NBD", () => {
  it("mounts ext4 on a file, and fio verifies", async () => {
    await using device = await onFile();
    const path = join(folder, "nbd.sock");
    await using server = await serveNbd(device, { path });
    await run("nbd-client", "-unix", path, "/dev/nbd0", "-name", "disk", "-block-size", "4096");
    try {
      expect(await run("blockdev", "--getsize64", "/dev/nbd0")).toBe(`${bytes}\n`);
      await verify("/dev/nbd0");
      await useFileSystem("/dev/nbd0");
      expect(server.stats().failed).toBe(0);
    } finally {
      await run("nbd-client", "-d", "/dev/nbd0");
    }
  });
});
