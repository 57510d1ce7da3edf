import { randomBytes } from "node:crypto";
import { mkdir, mkdtemp, open, readFile, rm, rmdir, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import {
  type BlockDevice,
  BlockDeviceError,
  losesPower,
  memoryDevice,
  NvmeTarget,
  openFileDevice,
} from "../src/index.ts";
import { configfs, connect, isGuest, mib, mounted, run } from "./kernel.test-support.ts";
import { openDisk, Stampers, type ZeroWay } from "./stamps.test-support.ts";

const bytes = 16 * mib;
const blocks = 256;
const writers = 8;
const cuts = process.env.CINNABAR_LONG === "1" ? 50 : 5;

/** A disk whose power goes off and on, as the target has it. */
interface PoweredDisk extends AsyncDisposable {
  readonly device: BlockDevice;
  cut(): Promise<void>;
  restore(): Promise<void>;
}

/** The kernel's null_blk in memory, behind a cache that forgets what was not flushed. */
async function poweredNullBlk(size: number) {
  const folder = `${await configfs()}/nullb/cut`;
  await mkdir(folder);
  const set = (name: string, value: number) => writeFile(`${folder}/${name}`, `${value}`);
  const facts = { size: size / mib, blocksize: 4096, memory_backed: 1, cache_size: 8 };
  for (const [name, value] of Object.entries(facts)) await set(name, value);
  await set("power", 1);
  return {
    path: "/dev/cut",
    power: (isOn: boolean) => set("power", isOn ? 1 : 0),
    async [Symbol.asyncDispose]() {
      await set("power", 0);
      await rmdir(folder);
    },
  };
}

/** That disk itself. It makes no holes: zeroes are written, and trims do nothing. */
async function nullBlk(): Promise<PoweredDisk> {
  const disk = await poweredNullBlk(bytes);
  const openAgain = () => openFileDevice(disk.path, { bytes });
  let device: BlockDevice = await openAgain();
  return {
    get device() {
      return device;
    },
    cut: () => disk.power(false),
    async restore() {
      await device.close();
      await disk.power(true);
      device = await openAgain();
    },
    async [Symbol.asyncDispose]() {
      await device.close();
      await disk[Symbol.asyncDispose]();
    },
  };
}

/** A file in ext4 on such a disk: trims make holes in the file. */
async function fileOnNullBlk(): Promise<PoweredDisk> {
  const disk = await poweredNullBlk(4 * bytes);
  await run("mkfs.ext4", "-q", "-F", "-J", "size=4", disk.path);
  const mountPoint = await mkdtemp(join(tmpdir(), "cinnabar-powered-file-"));
  const openAgain = async () => {
    await run("mount", "-o", "errors=remount-ro", disk.path, mountPoint);
    return openFileDevice(join(mountPoint, "disk.img"), { bytes });
  };
  let device: BlockDevice = await openAgain();
  await run("sync", "-f", mountPoint);
  const closeAndUnmount = async () => {
    await device.close();
    await run("umount", mountPoint);
  };
  return {
    get device() {
      return device;
    },
    cut: () => disk.power(false),
    async restore() {
      await closeAndUnmount();
      await disk.power(true);
      device = await openAgain();
    },
    async [Symbol.asyncDispose]() {
      await closeAndUnmount();
      await rmdir(mountPoint);
      await disk[Symbol.asyncDispose]();
    },
  };
}

/** A device of the package that loses its power, in front of memory. */
async function losing(): Promise<PoweredDisk> {
  const device = losesPower(memoryDevice({ bytes }));
  return {
    device,
    cut: () => device.cutPower(),
    restore: () => device.restorePower(),
    [Symbol.asyncDispose]: () => device.close(),
  };
}

/** The device that a disk has at the moment of each use, with some functions of the test's own. */
const currentOf = (powered: PoweredDisk, changed: Partial<BlockDevice> = {}): BlockDevice =>
  new Proxy({} as BlockDevice, {
    get(_, key: keyof BlockDevice) {
      const { device } = powered;
      const value = changed[key] ?? device[key];
      return typeof value === "function" ? value.bind(device) : value;
    },
  });

/** Serves a disk to the kernel while something is done with it there. */
async function served<T>(device: BlockDevice, work: (path: string) => Promise<T>): Promise<T> {
  const nqn = "nqn.2026-11.test:power";
  const subsystems = [{ nqn, namespaces: [device], hosts: "any" as const }];
  await using target = await NvmeTarget.listen({ subsystems, port: 0 });
  await using host = await connect(nqn, [target.address.port]);
  return await work(host.disk);
}

/** The ways by which Linux zeroes blocks of a disk. */
function waysToZero(path: string, device: BlockDevice): readonly ZeroWay[] {
  const ways: ZeroWay[] = [
    // fallocate: Write Zeroes, the first with deallocate.
    { zero: (disk, offset, bytes) => disk.writeZeroes(offset, bytes, { mayTrim: true }) },
    { zero: (disk, offset, bytes) => disk.writeZeroes(offset, bytes) },
    {
      fua: true,
      zero: (disk, offset, bytes) => disk.writeZeroes(offset, bytes, { mayTrim: true, fua: true }),
    },
  ];
  // The ioctl BLKDISCARD: Dataset Management.
  const discard: ZeroWay = {
    async zero(_, offset, bytes) {
      await run("blkdiscard", "-o", `${offset}`, "-l", `${bytes}`, path).catch((cause: Error) => {
        throw new BlockDeviceError("io", cause.message, cause);
      });
    },
  };
  return device.trimsToZero ? [...ways, discard] : ways;
}

/**
 * Cuts the power under writers that also zero blocks, again and again. Gives the blocks that were wrong after a cut.
 *
 * @param begin is called as each life of the disk begins, with its number from 0 on
 */
function cutUnderWriters(
  powered: PoweredDisk,
  device: BlockDevice,
  times: number,
  begin: (life: number) => void = () => {},
): Promise<readonly string[]> {
  return served(device, async (path) => {
    await using disk = await openDisk(path, blocks);
    const stampers = new Stampers(blocks, writers, waysToZero(path, device));
    const wrong: string[] = [];
    for (let cut = 0; cut < times; cut++) {
      const { rounds, zeroed } = stampers;
      begin(cut);
      stampers.start(disk);
      await stampers.until(() => stampers.rounds > rounds + writers && stampers.zeroed > zeroed + blocks / 4);
      await powered.cut();
      // The power stays off until the kernel has given up the commands under way, so that it does not repeat them
      // later.
      const errors = await stampers.ended();
      expect(errors.filter((error) => !(error instanceof BlockDeviceError))).toEqual([]);
      expect(errors).toHaveLength(writers);
      await powered.restore();
      wrong.push(...(await stampers.wrongBlocks(disk, "durable")));
    }
    const { written, zeroed, flushed } = stampers;
    console.log(`${times} cuts: ${written} stamps, ${zeroed} blocks zeroed, ${flushed} flushes`);
    return wrong;
  });
}

const disks: [string, () => Promise<PoweredDisk>][] = [
  ["null_blk of the kernel", nullBlk],
  ["a file in ext4 on null_blk", fileOnNullBlk],
  ["a device that loses power", losing],
];

/**
 * And whether the disk forgets a block that it had before. null_blk writes such a block through its cache: it forgets
 * first writes alone, and never that a block was zeroed. Where ext4 is mounted on it, the kernel makes ext4 write all
 * before null_blk goes, so that nothing is lost there.
 */
const forgetful: [string, () => Promise<PoweredDisk>, forgetsRewrites: boolean][] = [
  ["null_blk of the kernel", nullBlk, false],
  ["a device that loses power", losing, true],
];

describe.skipIf(!isGuest)("Linux as host of a disk whose power is cut", () => {
  it.each(disks)(
    "loses no block that was flushed, and finds none of before a trim that was flushed, on %s",
    async (_, newDisk) => {
      await using powered = await newDisk();
      const asked = { zeroes: 0, trims: 0 };
      const counting = currentOf(powered, {
        writeZeroes(offset, count, options) {
          asked.zeroes++;
          return powered.device.writeZeroes(offset, count, options);
        },
        trim(offset, count) {
          asked.trims++;
          return powered.device.trim(offset, count);
        },
      });
      expect(await cutUnderWriters(powered, counting, cuts)).toEqual([]);
      expect(asked.zeroes).toBeGreaterThan(0);
      if (powered.device.trimsToZero) expect(asked.trims).toBeGreaterThan(0);
    },
    600_000,
  );

  it.each(forgetful)(
    "finds what a flush that does nothing loses, on %s",
    async (_, newDisk, forgetsRewrites) => {
      await using powered = await newDisk();
      let lies = true;
      const device = currentOf(powered, {
        flush: async () => {
          if (!lies) await powered.device.flush();
        },
        write: (offset, data, options) => powered.device.write(offset, data, lies ? {} : options),
        writeZeroes: (offset, count, { fua, mayTrim } = {}) =>
          powered.device.writeZeroes(offset, count, { mayTrim, fua: fua === true && !lies }),
      });
      const wrong = await cutUnderWriters(powered, device, 5, (life) => {
        // The first life leaves stamps on the disk, for zeroes to replace.
        lies = life > 0 || !forgetsRewrites;
      });
      const back = wrong.filter((block) => block.endsWith("as before it was zeroed"));
      expect(wrong.length).toBeGreaterThan(back.length);
      if (forgetsRewrites) expect(back.length).toBeGreaterThan(0);
    },
  );

  it("finds the files of ext4 that were synchronised between deletions and fstrim", async () => {
    const mountPoint = await mkdtemp(join(tmpdir(), "cinnabar-kernel-power-"));
    await using powered = await fileOnNullBlk();
    let trims = 0;
    const counting = currentOf(powered, {
      trim(offset, count) {
        trims++;
        return powered.device.trim(offset, count);
      },
    });
    await served(counting, async (disk) => {
      await run("mkfs.ext4", "-q", "-F", "-J", "size=4", disk);
      const synchronised = new Map<string, Buffer>();
      let written = 0;
      const checkFiles = async () => {
        // One after the other: the disk is served by the same threads of libuv that wait for it here.
        for (const [name, data] of synchronised)
          expect(data.equals(await readFile(join(mountPoint, name))), name).toBe(true);
      };
      for (let cut = 0; cut < cuts / 5; cut++) {
        await run("mount", "-o", "errors=remount-ro", disk, mountPoint);
        await checkFiles();
        let isCut = false;
        const writing = (async () => {
          for (let file = 0; !isCut; file++) {
            const name = `${file % 100}`;
            const data = randomBytes(8192);
            synchronised.delete(name);
            await writeSynchronised(mountPoint, name, data);
            synchronised.set(name, data);
            written++;
            // Later files get blocks that were trimmed.
            if (file % 8 === 7) {
              const old = `${(file + 20) % 100}`;
              synchronised.delete(old);
              await rm(join(mountPoint, old), { force: true });
              await run("fstrim", mountPoint);
            }
          }
        })();
        writing.catch(() => {});
        const before = { written, trims };
        await expect.poll(() => written, { interval: 5 }).toBeGreaterThan(before.written + 30);
        await expect.poll(() => trims, { interval: 5 }).toBeGreaterThan(before.trims);
        await powered.cut();
        isCut = true;
        await writing.catch(() => {});
        await run("umount", mountPoint);
        await powered.restore();
      }
      await mounted(disk, mountPoint, checkFiles);
      await run("e2fsck", "-fn", disk);
    });
    await rm(mountPoint, { recursive: true });
  });
});

/** Resolves when a file, and the name of it, survive a loss of power. */
async function writeSynchronised(folder: string, name: string, data: Uint8Array): Promise<void> {
  await writeFile(join(folder, name), data, { flush: true });
  await using directory = await open(folder);
  await directory.sync();
}
