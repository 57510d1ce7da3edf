import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, mkdtemp, rm, stat, truncate, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { blocksOf, root } from "../../../test/docs/pages.test-support.ts";
import { start } from "../../cli/test/support/command-line.ts";
import { type BlockDevice, memoryDevice, NvmeTarget, openFileDevice, serveNbd } from "../src/index.ts";
import {
  addressOf,
  connect,
  fio,
  isGuest,
  mib,
  mounted,
  run,
  targetHosts,
  useFileSystem,
  verified,
  verify,
} from "./kernel.test-support.ts";

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
    await useFileSystem(host.disk, mountPoint);
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
    // A volatile cache, and no Flush of all namespaces.
    expect(facts).toMatchObject({ subnqn: nqn, vwc: 5 });
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

describe.skipIf(!isGuest)("Linux as host of NVMe/RDMA", () => {
  it.each([
    ["a file", onFile, []],
    ["memory, on two queues", onMemory, ["-i", "2"]],
  ])("mounts ext4 on %s, and fio verifies", async (_, newDevice, options) => {
    const nqn = "nqn.2026-11.test:rdma";
    await using device = await newDevice();
    const subsystems = [{ nqn, namespaces: [device], hosts: "any" as const }];
    await using target = NvmeTarget.open({ subsystems });
    const { host: traddr, port } = await target.listenRdma({ host: targetHosts.rdma, port: 0 });
    const list = await run("nvme", "discover", ...addressOf(port, "rdma"), "-o", "json");
    expect(JSON.parse(list).records).toMatchObject([
      { trtype: "rdma", subnqn: nqn, trsvcid: `${port}`, traddr },
    ]);
    await using host = await connect(nqn, [port], options, "rdma");
    expect(await run("blockdev", "--getsize64", "--getpbsz", host.disk)).toBe(`${bytes}\n4096\n`);
    await verify(host.disk);
    await useFileSystem(host.disk, mountPoint);
    await host.disconnect();
    await expect.poll(() => target.stats()).toMatchObject({ controllers: 0, open: 0 });
  });

  it("gets the status for data of a wrong length, and the disk serves on", async () => {
    const nqn = "nqn.2026-11.test:lengths";
    await using device = memoryDevice({ bytes: 64 * mib });
    const subsystems = [{ nqn, namespaces: [device], hosts: "any" as const }];
    await using target = NvmeTarget.open({ subsystems });
    const { port } = await target.listenRdma({ host: targetHosts.rdma, port: 0 });
    await using host = await connect(nqn, [port], [], "rdma");
    const data = join(folder, "two-blocks");
    await writeFile(data, Buffer.alloc(8192, 0xab));
    // One block, and memory for two.
    const wrong = ["-n", "1", "-l", "8192", "--cdw10=16", "--cdw12=0"];
    await expect(run("nvme", "io-passthru", host.disk, "-o", "2", "-r", ...wrong)).rejects.toThrow(/0x400f/);
    const written = run("nvme", "io-passthru", host.disk, "-o", "1", "-w", ...wrong, "-i", data);
    await expect(written).rejects.toThrow(/0x400f/);
    expect(await device.compare(65_536, Buffer.alloc(8192))).toBe(true);
    await run("nvme", "write", host.disk, "-z", "8192", "-c", "1", "-s", "16", "-d", data);
    expect(await device.compare(65_536, Buffer.alloc(8192, 0xab))).toBe(true);
    expect(target.stats()).toMatchObject({ controllers: 1, open: 2 });
  });

  it("is refused where its name is not among those that may connect, and at a name that there is not", async () => {
    const nqn = "nqn.2026-11.test:others-rdma";
    await using device = memoryDevice({ bytes: mib });
    const hosts = ["nqn.2026-11.test:another-host"];
    await using target = NvmeTarget.open({ subsystems: [{ nqn, namespaces: [device], hosts }] });
    const { port } = await target.listenRdma({ host: targetHosts.rdma, port: 0 });
    for (const name of [nqn, "nqn.2026-11.test:none"])
      await expect(connect(name, [port], [], "rdma")).rejects.toThrow(/could not add new controller/i);
    await expect.poll(() => target.stats()).toMatchObject({ controllers: 0, open: 0, inHandshake: 0 });
  });
});

describe.skipIf(!isGuest)("Linux as client of NBD", () => {
  /** The options of nbd-client, and the length that its requests are multiples of. */
  it.each<[string, readonly string[], number]>([
    ["as the guide has it", [], 512],
    ["with the disk's block size", ["-block-size", "4096"], 4096],
  ])("mounts ext4 on a file, and fio verifies, %s", async (_, options, unit) => {
    await using device = await onFile();
    const path = join(folder, "nbd.sock");
    await using server = await serveNbd(device, { path });
    await run("nbd-client", "-unix", path, "/dev/nbd0", "-name", "disk", ...options);
    try {
      expect(await run("blockdev", "--getsize64", "--getss", "/dev/nbd0")).toBe(`${bytes}\n${unit}\n`);
      await verify("/dev/nbd0");
      if (unit < device.blockBytes) {
        await fio("/dev/nbd0", ...verified, "--rw=randwrite", "--bs=512", "--iodepth=32", "--size=1M");
        await useFileSystem("/dev/nbd0", mountPoint, ["-b", "1024"]);
        const table = spawn("sfdisk", ["--quiet", "/dev/nbd0"], { stdio: ["pipe", "inherit", "inherit"] });
        table.stdin.end("label: gpt\nstart=2049, size=1001\nstart=3050\n");
        expect(await once(table, "exit")).toEqual([0, null]);
        const { partitiontable } = JSON.parse(await run("sfdisk", "--json", "/dev/nbd0"));
        expect(partitiontable.partitions).toMatchObject([{ start: 2049, size: 1001 }, { start: 3050 }]);
      }
      await useFileSystem("/dev/nbd0", mountPoint);
      expect(server.stats().failed).toBe(0);
    } finally {
      await run("nbd-client", "-d", "/dev/nbd0");
    }
  });
});

describe.skipIf(!isGuest)("Linux as client of NBD with the exports of one command", () => {
  it("mounts two disks by their names at the same time, and is refused without one of them", async () => {
    const path = join(folder, "several.sock");
    const args = ["--bytes", "64MiB", "--nbd", path, "--json"];
    const serving = start(["disk", "serve", "root.img", "data.img", ...args], { cwd: folder });
    await serving.lines(1);
    const disks = [
      { device: "/dev/nbd0", name: "root.img" },
      { device: "/dev/nbd1", name: "data.img" },
    ];
    for (const { device, name } of disks) await run("nbd-client", "-unix", path, device, "-name", name);
    try {
      await Promise.all(
        disks.map(async ({ device, name }) => {
          const place = join(folder, `mnt-${name}`);
          await mkdir(place);
          expect(await run("blockdev", "--getsize64", device)).toBe(`${64 * mib}\n`);
          await run("mkfs.ext4", "-q", "-F", device);
          await mounted(device, place, () => writeFile(join(place, "name"), name));
        }),
      );
      for (const wrong of [[], ["-name", "other.img"]])
        await expect(run("nbd-client", "-unix", path, "/dev/nbd2", ...wrong)).rejects.toThrow();
    } finally {
      for (const { device } of disks) await run("nbd-client", "-d", device);
    }
    serving.child.kill("SIGTERM");
    expect(await serving.ended).toMatchObject({ status: 143, stderr: "" });
    for (const { name } of disks) {
      await run("e2fsck", "-fn", join(folder, name));
      expect(await run("debugfs", "-R", "cat /name", join(folder, name))).toBe(name);
    }
  });
});

describe.skipIf(!isGuest)("the guide", () => {
  it("mounts a small file system, which has blocks of 1 KiB, by its lines as they stand", async () => {
    const [lines] = blocksOf("docs/guide/disks.md").filter(({ text }) =>
      text.includes("nbd-client -unix disk.sock"),
    );
    const image = join(folder, "small.img");
    await writeFile(image, "");
    await truncate(image, 64 * mib);
    await run("mkfs.ext4", "-q", "-F", image);
    expect(await run("dumpe2fs", "-h", image)).toMatch(/Block size: +1024/);
    await using device = await openFileDevice(image);
    await using server = await serveNbd(device, { path: join(folder, "disk.sock") });
    // Tests are root in the guest, whose kernel has the module within.
    const commands = lines?.text
      .replaceAll("sudo ", "")
      .replace("modprobe nbd", "")
      .replaceAll("/mnt", mountPoint);
    try {
      await run("bash", "-ec", `cd ${folder}\n${commands}`);
      await run("cp", "-r", join(root, "docs"), mountPoint);
      await run("umount", mountPoint);
    } finally {
      await run("nbd-client", "-d", "/dev/nbd0");
    }
    expect(server.stats().failed).toBe(0);
    await run("e2fsck", "-fn", image);
  });
});

describe.skipIf(!isGuest)("fstrim of Linux", () => {
  /** Space of the file behind the disk, in bytes. */
  const spaceOf = async () => 512 * (await stat(join(folder, "disk.img"))).blocks;

  async function trimmed(disk: string): Promise<void> {
    await run("mkfs.ext4", "-q", "-F", disk);
    const sizes = { made: await spaceOf(), full: 0, trimmed: 0 };
    await mounted(disk, mountPoint, async () => {
      await run(
        "dd",
        "if=/dev/urandom",
        `of=${join(mountPoint, "data")}`,
        "bs=1M",
        "count=100",
        "conv=fsync",
      );
      sizes.full = await spaceOf();
      await run("rm", join(mountPoint, "data"));
      // ext4 trims what its journal has let go.
      await run("sync", "-f", mountPoint);
      await run("fstrim", mountPoint);
      sizes.trimmed = await spaceOf();
    });
    await run("e2fsck", "-fn", disk);
    console.log(JSON.stringify(sizes));
    expect(sizes.full).toBeGreaterThan(100 * mib);
    expect(sizes.trimmed).toBeLessThan(sizes.full - 90 * mib);
  }

  it("gives the space of a file back over NBD", async () => {
    await using device = await onFile();
    const path = join(folder, "nbd.sock");
    await using _server = await serveNbd(device, { path });
    await run("nbd-client", "-unix", path, "/dev/nbd0", "-name", "disk");
    try {
      await trimmed("/dev/nbd0");
    } finally {
      await run("nbd-client", "-d", "/dev/nbd0");
    }
  });

  it("gives the space of a file back over NVMe/TCP", async () => {
    const nqn = "nqn.2026-11.test:trimmed";
    await using device = await onFile();
    await using target = await NvmeTarget.listen({
      subsystems: [{ nqn, namespaces: [device], hosts: "any" }],
      port: 0,
    });
    await using host = await connect(nqn, [target.address.port]);
    await trimmed(host.disk);
  });
});
