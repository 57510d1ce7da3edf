import { existsSync, readFileSync } from "node:fs";
import { type FileHandle, mkdir, mkdtemp, open, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { blocksOf, root } from "../../../test/docs/pages.test-support.ts";
import { type Running, start } from "../../cli/test/support/command-line.ts";
import {
  type Carrier,
  connect,
  fio,
  foundDisk,
  freePort,
  isGuest,
  mib,
  pathsOf,
  run,
  serveFile,
  verified,
} from "./kernel.test-support.ts";
import { openDisk, Stampers } from "./stamps.test-support.ts";

const bytes = 128 * mib;
const blockBytes = 4096;
const blocks = 1024;
const writers = 8;
const md = "/dev/md0";
let folder = "";

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "cinnabar-mirror-"));
});
afterAll(() => rm(folder, { recursive: true }));

/** A machine of the mirror: the process that serves its disk, and the disk as this kernel has it. */
interface Side extends AsyncDisposable {
  readonly file: string;
  readonly disk: string;
  kill(): Promise<void>;
  /** Starts the server again, and waits until the kernel has the disk again. */
  restore(): Promise<void>;
}

async function nvmeSide(name: string, carrier: Carrier): Promise<Side> {
  const file = join(folder, `${name}-${carrier}.img`);
  const nqn = `nqn.2026-11.test:mirror-${name}-${carrier}`;
  const port = await freePort();
  const serve = () => serveFile(file, port, nqn, bytes, carrier);
  let server = await serve();
  const host = await connect(nqn, [port], ["-k", "5", "-c", "1", "-l", "600"], carrier);
  await failSoon(nqn);
  return {
    file,
    disk: host.disk,
    async kill() {
      server.child.kill("SIGKILL");
      await server.ended;
    },
    async restore() {
      server = await serve();
      await isLive(nqn);
    },
    async [Symbol.asyncDispose]() {
      await host.disconnect();
      await endInOrder(server);
      await rm(file);
    },
  };
}

async function nbdSide(name: string, disk: string): Promise<Side> {
  const file = join(folder, `${name}-nbd.img`);
  const path = join(folder, `${name}.sock`);
  const serve = async () => {
    const running = start(["disk", "serve", file, "--bytes", `${bytes}`, "--nbd", path, "--json"]);
    await running.lines(1);
    const options = ["-block-size", `${blockBytes}`, "-timeout", "5"];
    await run("nbd-client", "-unix", path, disk, "-name", "disk", ...options);
    return running;
  };
  let server = await serve();
  const detach = () => run("nbd-client", "-d", disk);
  return {
    file,
    disk,
    async kill() {
      server.child.kill("SIGKILL");
      await server.ended;
    },
    async restore() {
      await detach();
      server = await serve();
    },
    async [Symbol.asyncDispose]() {
      await detach();
      await endInOrder(server);
      await rm(file);
    },
  };
}

async function endInOrder({ child, ended }: Running): Promise<void> {
  child.kill("SIGTERM");
  expect(await ended).toMatchObject({ status: 143, stderr: "" });
}

/** Has the kernel report errors of a disk that it has lost, in place of holding its requests. */
async function failSoon(nqn: string): Promise<void> {
  for (const { device } of pathsOf(nqn))
    await writeFile(`/sys/class/nvme/${basename(device)}/fast_io_fail_tmo`, "3");
}

const isLive = (nqn: string) => expect.poll(() => pathsOf(nqn)[0]?.state, { timeout: 60_000 }).toBe("live");

/** What md says about the mirror. */
const mdFact = (name: string): string => readFileSync(`/sys/block/md0/md/${name}`, "utf8").trim();

/** Where the blocks of the mirror lie in each file. Before and behind them is what md keeps for itself. */
const placeIn = ({ disk }: Side) => ({
  offset: 512 * Number(mdFact(`dev-${basename(disk)}/offset`)),
  length: 1024 * Number(mdFact("component_size")),
});

/** Bytes that this kernel has read from a disk, and written to it. */
function movedBy({ disk }: Side): { readonly read: number; readonly written: number } {
  const text = readFileSync(`/sys/block/${basename(disk)}/stat`, "utf8");
  const counts = text.trim().split(/\s+/).map(Number);
  return { read: 512 * (counts[2] ?? 0), written: 512 * (counts[6] ?? 0) };
}

/**
 * Makes the mirror of two disks. Its regions are small beside the disk, as those of a great one are.
 *
 * @param far is read only where the other one cannot be
 */
async function createMirror(sides: readonly Side[], far?: Side): Promise<AsyncDisposable> {
  const facts = ["--run", "--level=1", "--metadata=1.2", "--raid-devices=2"];
  const bitmap = ["--bitmap=internal", "--bitmap-chunk=256K"];
  const disks = sides.flatMap((side) => (side === far ? ["--write-mostly", side.disk] : [side.disk]));
  await run("mdadm", "--create", md, ...facts, ...bitmap, ...disks);
  await isInStep();
  return { [Symbol.asyncDispose]: stop };
}

/** Stops the mirror, if there is one. */
async function stop(): Promise<void> {
  if (existsSync("/sys/block/md0/md/degraded")) await run("mdadm", "--stop", md);
}

/** Waits until a new mirror has copied one side to the other. */
async function isInStep(): Promise<void> {
  await expect.poll(() => mdFact("resync_start"), { timeout: 300_000 }).toBe("none");
  await isWhole();
}

/** Waits until no side lacks a block. */
const isWhole = () =>
  expect.poll(() => [mdFact("degraded"), mdFact("sync_action")], { timeout: 300_000 }).toEqual(["0", "idle"]);

const isDegraded = () => expect.poll(() => mdFact("degraded"), { timeout: 120_000 }).toBe("1");

/** Brings a lost side back, which the mirror lets go before: a client of NBD cannot connect a disk that is held. */
async function restore(lost: Side): Promise<void> {
  await run("mdadm", md, "--remove", lost.disk);
  await lost.restore();
}

/** Gives a side back to the mirror. */
async function addAgain({ disk }: Side): Promise<void> {
  await run("mdadm", md, "--re-add", disk);
  await isWhole();
}

/** The count of blocks that differ, as md finds it. */
async function mismatches(action: "check" | "repair" = "check"): Promise<number> {
  await writeFile("/sys/block/md0/md/sync_action", action);
  await expect.poll(() => mdFact("sync_action"), { timeout: 300_000 }).toBe("idle");
  return Number(mdFact("mismatch_cnt"));
}

/** The blocks that differ in two files. */
async function differing(files: readonly string[], offset: number, length: number): Promise<number[]> {
  const handles: FileHandle[] = [];
  try {
    for (const file of files) handles.push(await open(file));
    const parts = handles.map(() => Buffer.alloc(mib));
    const found: number[] = [];
    for (let at = 0; at < length; at += mib) {
      const size = Math.min(mib, length - at);
      for (const [index, handle] of handles.entries())
        expect((await handle.read(parts[index] as Buffer, 0, size, offset + at)).bytesRead).toBe(size);
      const [one, two] = parts as [Buffer, Buffer];
      if (one.equals(two)) continue;
      for (let block = 0; block < size; block += blockBytes)
        if (one.compare(two, block, block + blockBytes, block, block + blockBytes) !== 0)
          found.push((at + block) / blockBytes);
    }
    return found;
  } finally {
    for (const handle of handles) await handle.close();
  }
}

/** Begins fio at a disk or file, again and again. Each block is read back. */
function startFio(path: string, offset = 0): { stop(): Promise<void> } {
  let isOver = false;
  const verifying = (async () => {
    const place = [`--offset=${offset}`, "--size=8M"];
    const job = [...verified, "--rw=randwrite", "--bs=4k", "--iodepth=16"];
    for (let number = 1; !isOver; number++) await fio(path, ...place, ...job, `--randseed=${number}`);
  })();
  verifying.catch(() => {});
  return {
    async stop() {
      isOver = true;
      await verifying;
    },
  };
}

describe.skipIf(!isGuest)("a disk on two machines by md RAID1", () => {
  it.each<[string, (name: string, index: number) => Promise<Side>]>([
    ["NVMe/TCP", (name) => nvmeSide(name, "tcp")],
    ["NVMe/RDMA", (name) => nvmeSide(name, "rdma")],
    ["NBD", (name, index) => nbdSide(name, `/dev/nbd${index}`)],
  ])(
    "goes on when either is killed under fio, gets back what it missed alone, and both disks are equal, over %s",
    async (_, newSide) => {
      await using one = await newSide("one", 0);
      await using two = await newSide("two", 1);
      const files = [one.file, two.file];
      await using _mirror = await createMirror([one, two]);
      const { offset, length } = placeIn(one);
      expect(placeIn(two)).toEqual({ offset, length });
      const stampers = new Stampers(blocks, writers);
      {
        await using disk = await openDisk(md, blocks);
        // First with nobody writing while the side catches up, so that what is copied can be counted.
        for (const [lost, isQuiet] of [
          [two, true],
          [one, false],
        ] as const) {
          stampers.start(disk);
          const jobs = startFio(md, 64 * mib);
          const before = stampers.written;
          await stampers.until(() => stampers.written > before + writers);
          await lost.kill();
          await isDegraded();
          const degraded = stampers.written;
          await stampers.until(() => stampers.written > degraded + blocks);
          if (isQuiet) {
            await jobs.stop();
            expect(await stampers.stop()).toEqual([]);
            const missed = blockBytes * (await differing(files, offset, length)).length;
            expect(missed).toBeGreaterThan(0);
            await restore(lost);
            const { written } = movedBy(lost);
            await addAgain(lost);
            const copied = movedBy(lost).written - written;
            console.log(`missed ${missed} bytes of ${length}, copied ${copied}`);
            expect(copied).toBeGreaterThanOrEqual(missed);
            expect(copied).toBeLessThan(length / 4);
          } else {
            await restore(lost);
            await addAgain(lost);
            await jobs.stop();
            expect(await stampers.stop()).toEqual([]);
          }
          expect(await stampers.wrongBlocks(disk, "acknowledged")).toEqual([]);
          await disk.flush();
          expect(await differing(files, offset, length)).toEqual([]);
        }
      }
      expect(await mismatches()).toBe(0);
      await stop();
      expect(await differing(files, offset, length)).toEqual([]);
      for (const file of files) {
        await using handle = await open(file);
        const part = {
          read: async (at: number, into: Uint8Array) =>
            void (await handle.read(into, 0, into.length, offset + at)),
        };
        expect(await stampers.wrongBlocks(part, "acknowledged")).toEqual([]);
      }
    },
    600_000,
  );

  it("reads the near side, and finds by its check alone what the far side has changed", async () => {
    await using near = await nvmeSide("near", "tcp");
    await using far = await nvmeSide("far", "tcp");
    const files = [near.file, far.file];
    await using _mirror = await createMirror([near, far], far);
    const { offset, length } = placeIn(near);
    const damage = 40 * mib;
    await using handle = await open(far.file, "r+");
    await handle.write(Buffer.alloc(blockBytes, 0xab), 0, blockBytes, offset + damage);
    expect(await differing(files, offset, length)).toEqual([damage / blockBytes]);
    const before = movedBy(far).read;
    const job = await fio(md, "--rw=read", "--bs=64k", `--offset=${damage}`, "--size=8M");
    expect(job.read.io_bytes).toBe(8 * mib);
    expect(movedBy(far).read).toBe(before);
    expect(await mismatches()).toBeGreaterThan(0);
    await mismatches("repair");
    expect(await mismatches()).toBe(0);
    expect(await differing(files, offset, length)).toEqual([]);
  });

  it("starts with the side that went on, and does not start the side that was lost alone", async () => {
    await using one = await nvmeSide("one", "tcp");
    await using two = await nvmeSide("two", "tcp");
    const files = [one.file, two.file];
    await using _mirror = await createMirror([one, two]);
    const { offset, length } = placeIn(one);
    const stampers = new Stampers(blocks, writers);
    {
      await using disk = await openDisk(md, blocks);
      stampers.start(disk);
      await stampers.until(() => stampers.written > blocks);
      await two.kill();
      await isDegraded();
      const degraded = stampers.written;
      await stampers.until(() => stampers.written > degraded + blocks);
      expect(await stampers.stop()).toEqual([]);
    }
    await one.kill();
    await stop();
    await two.restore();
    await expect(run("mdadm", "--assemble", md, two.disk)).rejects.toThrow(/not enough to start|need all/);
    await stop();
    await one.restore();
    await run("mdadm", "--assemble", md, one.disk, two.disk);
    expect(mdFact("degraded")).toBe("1");
    {
      await using disk = await openDisk(md, blocks);
      expect(await stampers.wrongBlocks(disk, "durable")).toEqual([]);
    }
    await addAgain(two);
    expect(await mismatches()).toBe(0);
    expect(await differing(files, offset, length)).toEqual([]);
  });

  it("leaves sides that were used apart different by --re-add, and makes them equal by --add", async () => {
    await using one = await nvmeSide("one", "tcp");
    await using two = await nvmeSide("two", "tcp");
    await using _mirror = await createMirror([one, two]);
    const { offset, length } = placeIn(one);
    for (const [index, { disk }] of [one, two].entries()) {
      await stop();
      await run("mdadm", "--assemble", md, "--run", disk);
      await fio(md, "--rw=write", "--bs=64k", `--offset=${index * 32 * mib}`, "--size=1M", "--end_fsync=1");
    }
    await stop();
    await run("mdadm", "--assemble", md, one.disk);
    await addAgain(two);
    const written = (32 * mib) / blockBytes;
    const apart = Array.from({ length: mib / blockBytes }, (_, index) => written + index);
    expect(await differing([one.file, two.file], offset, length)).toEqual(apart);
    expect(await mismatches()).toBeGreaterThan(0);
    await run("mdadm", md, "--fail", two.disk);
    await run("mdadm", md, "--remove", two.disk);
    await run("mdadm", "--zero-superblock", two.disk);
    await run("mdadm", md, "--add", two.disk);
    await isWhole();
    expect(await mismatches()).toBe(0);
    expect(await differing([one.file, two.file], offset, length)).toEqual([]);
  });
});

describe.skipIf(!isGuest)("the guide", () => {
  it("mirrors a disk, takes a lost side back and compares both, by its lines as they stand", async () => {
    const mountPoint = join(folder, "mnt");
    await mkdir(mountPoint);
    const names = ["one", "two"];
    const nqns = names.map((name) => `nqn.2026-11.com.example:${name}`);
    const files = names.map((name) => join(folder, `guide-${name}.img`));
    const ports = [await freePort(), await freePort()];
    const serve = (side: number) => serveFile(files[side] ?? "", ports[side] ?? 0, nqns[side] ?? "", bytes);
    const servers = [await serve(0), await serve(1)];
    const disks: string[] = [];
    /** Runs the lines of the page that have this in them, here. Tests are root, and the kernel has its modules within. */
    const follow = async (part: string) => {
      const found = blocksOf("docs/guide/mirrored-disks.md").filter(({ text }) => text.includes(part));
      expect(found.map(({ language }) => language)).toEqual(["sh"]);
      const lines = (found[0]?.text ?? "")
        .replace("modprobe nvme-tcp\n", "")
        .replace("10.0.0.7 -s 4420", `127.0.0.1 -s ${ports[0]}`)
        .replace("10.0.0.8 -s 4420", `127.0.0.1 -s ${ports[1]}`)
        .replaceAll("/dev/nvme0n1", `${disks[0]}`)
        .replaceAll("/dev/nvme1n1", `${disks[1]}`)
        .replaceAll("/mnt", mountPoint)
        // It fails where there is nothing to wait for any more.
        .replace("--wait /dev/md0", "--wait /dev/md0 || true");
      return await run("bash", "-ec", lines);
    };
    try {
      await follow("nvme connect");
      for (const nqn of nqns) disks.push(await foundDisk(nqn));
      await follow("mdadm --create");
      await isInStep();
      const jobs = startFio(join(mountPoint, "file"));
      servers[1]?.child.kill("SIGKILL");
      await isDegraded();
      await run("cp", "-r", join(root, "docs"), mountPoint);
      await jobs.stop();
      servers[1] = await serve(1);
      await isLive(nqns[1] ?? "");
      await follow("--re-add");
      await isWhole();
      await run("diff", "-r", join(root, "docs"), join(mountPoint, "docs"));
      await run("rm", "-r", join(mountPoint, "docs"));
      await run("fstrim", mountPoint);
      expect((await follow("echo check")).trim()).toBe("0");
      await run("umount", mountPoint);
      await stop();
      await follow("mdadm --assemble");
      expect(mdFact("degraded")).toBe("0");
      await run("e2fsck", "-fn", md);
    } finally {
      await stop();
      for (const nqn of nqns) await run("nvme", "disconnect", "-n", nqn);
      for (const server of servers) await endInOrder(server);
    }
  }, 600_000);
});
