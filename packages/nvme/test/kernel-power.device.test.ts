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
import { openDisk, Stampers } from "./stamps.test-support.ts";

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
async function nullBlk(): Promise<PoweredDisk> {
  const folder = `${await configfs()}/nullb/cut`;
  await mkdir(folder);
  const set = (name: string, value: number) => writeFile(`${folder}/${name}`, `${value}`);
  const facts = { size: bytes / mib, blocksize: 4096, memory_backed: 1, cache_size: 8 };
  for (const [name, value] of Object.entries(facts)) await set(name, value);
  await set("power", 1);
  const openAgain = () => openFileDevice("/dev/cut", { bytes });
  let device: BlockDevice = await openAgain();
  return {
    get device() {
      return device;
    },
    cut: () => set("power", 0),
    async restore() {
      await device.close();
      await set("power", 1);
      device = await openAgain();
    },
    async [Symbol.asyncDispose]() {
      await device.close();
      await set("power", 0);
      await rmdir(folder);
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

/** Cuts the power under writers again and again. Gives the blocks that were wrong after a cut. */
function cutUnderWriters(
  powered: PoweredDisk,
  device: BlockDevice,
  times: number,
): Promise<readonly string[]> {
  return served(device, async (path) => {
    await using disk = await openDisk(path, blocks);
    const stampers = new Stampers(blocks, writers);
    const wrong: string[] = [];
    for (let cut = 0; cut < times; cut++) {
      const { flushed } = stampers;
      stampers.start(disk);
      await stampers.until(() => stampers.flushed > flushed + 3 * writers);
      await powered.cut();
      // The power stays off until the kernel has given up the commands under way, so that it does not repeat them
      // later.
      const errors = await stampers.ended();
      expect(errors.filter((error) => !(error instanceof BlockDeviceError))).toEqual([]);
      expect(errors).toHaveLength(writers);
      await powered.restore();
      wrong.push(...(await stampers.wrongBlocks(disk, "durable")));
    }
    console.log(`${times} cuts: ${stampers.written} stamps, ${stampers.flushed} flushes`);
    return wrong;
  });
}

describe.skipIf(!isGuest)("Linux as host of a disk whose power is cut", () => {
  it.each([
    ["null_blk of the kernel", nullBlk],
    ["a device that loses power", losing],
  ])(
    "loses no block that was flushed, on %s",
    async (_, newDisk) => {
      await using powered = await newDisk();
      expect(await cutUnderWriters(powered, currentOf(powered), cuts)).toEqual([]);
    },
    600_000,
  );

  it.each([
    ["null_blk of the kernel", nullBlk],
    ["a device that loses power", losing],
  ])("loses blocks where a flush does nothing, on %s", async (_, newDisk) => {
    await using powered = await newDisk();
    const device = currentOf(powered, {
      flush: async () => {},
      write: (offset, data) => powered.device.write(offset, data),
    });
    expect((await cutUnderWriters(powered, device, 5)).length).toBeGreaterThan(0);
  });

  it("finds the files of ext4 that were synchronised", async () => {
    const mountPoint = await mkdtemp(join(tmpdir(), "cinnabar-kernel-power-"));
    await using powered = await nullBlk();
    await served(currentOf(powered), async (disk) => {
      await run("mkfs.ext4", "-q", "-F", "-J", "size=4", disk);
      const synchronised = new Map<string, Buffer>();
      let written = 0;
      const checkFiles = async () => {
        const names = [...synchronised.keys()];
        const found = names.map(async (name) =>
          synchronised.get(name)?.equals(await readFile(join(mountPoint, name))),
        );
        expect(await Promise.all(found)).toEqual(names.map(() => true));
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
          }
        })();
        writing.catch(() => {});
        const before = written;
        await expect.poll(() => written, { interval: 5 }).toBeGreaterThan(before + 10);
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
