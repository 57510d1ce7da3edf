import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import {
  mkdir,
  mkdtemp,
  open,
  readdir,
  readFile,
  readlink,
  rm,
  stat,
  truncate,
  writeFile,
} from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { BlockDevice } from "./block-device.ts";
import { openFileDevice } from "./file-device.ts";
import { losesPower } from "./loses-power.ts";
import { memoryDevice, nullDevice } from "./memory-device.ts";

const mib = 1024 * 1024;
const bytes = 4 * mib;
let folder = "";
let files = 0;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "cinnabar-device-"));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

const newFile = () => join(folder, `disk-${files++}.img`);

/** Bytes that depend on their place, so that a swap of blocks is found. */
function stamped(length: number, seed: number): Buffer {
  const data = Buffer.alloc(length);
  for (let at = 0; at < length; at += 4) data.writeUInt32LE((at * 2_654_435_761 + seed) >>> 0, at);
  return data;
}

async function readAt(device: BlockDevice, offset: number, length: number): Promise<Buffer> {
  const into = Buffer.alloc(length, 0xee);
  await device.read(offset, into);
  return into;
}

const kinds: readonly [string, (options?: { isReadOnly: boolean }) => Promise<BlockDevice>][] = [
  ["memory", async (options) => memoryDevice({ bytes, ...options })],
  ["a file, direct where it can be", async () => openFileDevice(newFile(), { bytes })],
  ["a file in the page cache", async () => openFileDevice(newFile(), { bytes, isDirect: false })],
  ["memory that loses power", async () => losesPower(memoryDevice({ bytes }), { cacheBytes: 64 * 1024 })],
];

describe.each(kinds)("a device on %s", (_, open) => {
  it("reads what was written, over the borders of its parts, and zeroes where nothing was written", async () => {
    await using device = await open();
    expect(device).toMatchObject({ bytes, blockBytes: 4096, isReadOnly: false });
    const data = stamped(mib + 8192, 7);
    await device.write(61_440, data);
    expect((await readAt(device, 61_440, data.length)).equals(data)).toBe(true);
    expect((await readAt(device, 57_344, 4096)).equals(Buffer.alloc(4096))).toBe(true);
    expect((await readAt(device, bytes - 4096, 4096)).equals(Buffer.alloc(4096))).toBe(true);
  });

  it("takes a buffer that begins anywhere", async () => {
    await using device = await open();
    const data = Buffer.concat([Buffer.alloc(1), stamped(12_288, 3)]).subarray(1);
    await device.write(4096, data, { fua: true });
    const into = Buffer.alloc(12_291).subarray(3);
    await device.read(4096, into);
    expect(into.equals(data)).toBe(true);
  });

  it("writes zeroes, trims and compares", async () => {
    await using device = await open();
    const data = stamped(mib, 1);
    await device.write(0, data);
    await device.flush();
    expect(await device.compare(0, data)).toBe(true);
    expect(await device.compare(4096, data)).toBe(false);
    await device.writeZeroes(4096, 8192, { fua: true });
    expect(await device.compare(4096, Buffer.alloc(8192))).toBe(true);
    expect(await device.compare(12_288, data.subarray(12_288))).toBe(true);
    await device.writeZeroes(65_536, 262_144, { mayTrim: true });
    expect(await device.compare(65_536, Buffer.alloc(262_144))).toBe(true);
    await device.trim(0, 4096);
    if (device.trimsToZero) expect(await device.compare(0, Buffer.alloc(4096))).toBe(true);
    await device.trim(0, bytes);
    if (device.trimsToZero) expect(await device.compare(0, Buffer.alloc(bytes))).toBe(true);
  });

  it("says which blocks take space", async () => {
    await using device = await open();
    await device.write(131_072, stamped(65_536, 1));
    const extents = await device.extents(65_536, 262_144);
    expect(extents.reduce((sum, extent) => sum + extent.bytes, 0)).toBe(262_144);
    for (const [index, extent] of extents.entries()) expect(extent.kind).not.toBe(extents[index - 1]?.kind);
    expect(await device.extents(0, 0)).toEqual([]);
  });

  it("does many operations at the same time", async () => {
    await using device = await open();
    const blocks = Array.from({ length: 64 }, (_, index) => stamped(16_384, index));
    await Promise.all(blocks.map((block, index) => device.write(index * 65_536, block)));
    const read = await Promise.all(blocks.map((_, index) => readAt(device, index * 65_536, 16_384)));
    for (const [index, block] of blocks.entries()) expect(read[index]?.equals(block)).toBe(true);
  });

  it("writes what depends on a comparison, and no other change of the blocks comes between", async () => {
    await using device = await open();
    await device.write(4096, stamped(8192, 1));
    expect(await device.compareAndWrite(4096, stamped(8192, 2), stamped(8192, 3))).toBe(false);
    expect(await device.compareAndWrite(4096, stamped(8192, 1), stamped(8192, 3), { fua: true })).toBe(true);
    expect((await readAt(device, 4096, 8192)).equals(stamped(8192, 3))).toBe(true);
    // Each worker adds one to the value that it has read, until no other worker was faster. Half of them have two
    // blocks.
    await device.writeZeroes(65_536, 8192);
    const add = async (length: number) => {
      for (;;) {
        const before = await readAt(device, 65_536, length);
        const after = Buffer.from(before);
        after.writeUInt32LE(before.readUInt32LE(0) + 1, 0);
        if (await device.compareAndWrite(65_536, before, after)) return;
      }
    };
    await Promise.all(Array.from({ length: 16 }, (_, index) => add(index % 2 === 0 ? 4096 : 8192)));
    expect((await readAt(device, 65_536, 4096)).readUInt32LE(0)).toBe(16);
    // A write at the same time comes behind the comparison and its write.
    for (let round = 0; round < 32; round++) {
      await device.write(0, stamped(4096, 1));
      const [isWritten] = await Promise.all([
        device.compareAndWrite(0, stamped(4096, 1), stamped(4096, 2)),
        device.write(0, stamped(4096, 3)),
        device.write(4096, stamped(4096, 4)),
      ]);
      expect([isWritten, (await readAt(device, 0, 4096)).equals(stamped(4096, 3))]).toEqual([true, true]);
    }
    await expect(device.compareAndWrite(0, Buffer.alloc(4096), Buffer.alloc(8192))).rejects.toMatchObject({
      code: "out_of_range",
      message: expect.stringMatching(/expected must be as long as data, 8192 bytes, it is 4096$/),
    });
  });

  it("refuses ranges that do not fit, naming field and limit", async () => {
    await using device = await open();
    const block = Buffer.alloc(4096);
    await expect(device.read(bytes, block)).rejects.toMatchObject({
      code: "out_of_range",
      message: expect.stringMatching(/read: 4096 bytes from 4194304 on end beyond .* 4194304 bytes$/),
    });
    await expect(device.write(bytes - 4096, Buffer.alloc(8192))).rejects.toMatchObject({
      code: "out_of_range",
    });
    await expect(device.read(512, block)).rejects.toMatchObject({
      code: "unaligned",
      message: expect.stringMatching(/offset must be a multiple of the block, 4096 bytes, it is 512$/),
    });
    await expect(device.compare(0, Buffer.alloc(100))).rejects.toMatchObject({ code: "unaligned" });
    for (const offset of [-4096, 1.5, Number.NaN, 2 ** 60, Number.POSITIVE_INFINITY])
      await expect(device.trim(offset, 4096)).rejects.toMatchObject({ code: "out_of_range" });
  });

  it("closes when nothing is under way, and refuses later operations", async () => {
    const device = await open();
    const writing = device.write(0, stamped(mib, 1));
    const closing = device.close();
    await writing;
    await closing;
    await device.close();
    await expect(device.flush()).rejects.toMatchObject({ code: "closed", name: "BlockDeviceError" });
  });
});

describe("a null device", () => {
  it("reads as zeroes whatever was written, and may be as large as numbers count", async () => {
    await using device = nullDevice({ bytes: 2 ** 50 });
    await device.write(2 ** 49, stamped(4096, 1));
    expect(await device.compare(2 ** 49, Buffer.alloc(4096))).toBe(true);
    expect(await device.extents(0, 2 ** 50)).toEqual([{ bytes: 2 ** 50, kind: "hole" }]);
  });
});

describe("options of devices", () => {
  it.each<[object, string]>([
    [{}, "memoryDevice: bytes is missing"],
    [{ bytes: 1 }, "memoryDevice: bytes must be an integer from 512 to"],
    [{ bytes: 6000 }, "memoryDevice: bytes must be a multiple of blockBytes, 4096, it is 6000"],
    [
      { bytes: 4096, blockBytes: 1000 },
      "memoryDevice: blockBytes must be a power of two from 512 to 65536, it is 1000",
    ],
    [{ bytes: 4096, size: 1 }, 'memoryDevice: unknown option "size"'],
  ])("%j are refused", (options, message) => {
    expect(() => memoryDevice(options as { bytes: number })).toThrow(message);
  });

  it("make a device read-only", async () => {
    await using device = memoryDevice({ bytes, isReadOnly: true });
    await expect(device.write(0, Buffer.alloc(4096))).rejects.toMatchObject({ code: "read_only" });
    await expect(device.trim(0, 4096)).rejects.toMatchObject({ code: "read_only" });
    await device.flush();
  });
});

describe("a device on a file", () => {
  it("keeps what it has when it is opened again, and never cuts a file", async () => {
    const path = newFile();
    const data = stamped(8192, 5);
    {
      await using device = await openFileDevice(path, { bytes });
      await device.write(8192, data);
    }
    expect((await readFile(path)).subarray(8192, 16_384).equals(data)).toBe(true);
    await using device = await openFileDevice(path, { isReadOnly: true });
    expect(device).toMatchObject({ bytes, isReadOnly: true });
    expect(await device.compare(8192, data)).toBe(true);
    await expect(device.write(0, data)).rejects.toMatchObject({ code: "read_only" });
    await device.flush();
    await expect(openFileDevice(path, { bytes: 8192 })).rejects.toThrow(
      /^openFileDevice: bytes must be the size of .*, 4194304, or more for a device that is written, it is 8192$/,
    );
  });

  it("says what is wrong with a file", async () => {
    await expect(openFileDevice(newFile())).rejects.toMatchObject({
      code: "io",
      message: expect.stringContaining("ENOENT"),
    });
    await expect(openFileDevice(folder)).rejects.toMatchObject({ code: "io" });
    const odd = newFile();
    await writeFile(odd, Buffer.alloc(1000));
    await expect(openFileDevice(odd)).rejects.toThrow(
      /must have a multiple of blockBytes, 4096, above 0; it has 1000 bytes$/,
    );
  });

  it("leaves no file behind for a size that is refused, and makes none in the place of a device", async () => {
    const path = newFile();
    await expect(openFileDevice(path, { bytes: 5000 })).rejects.toThrow(/it has 5000 bytes$/);
    expect(existsSync(path)).toBe(false);
    await expect(openFileDevice("/dev/cinnabar-none", { bytes: 4096 })).rejects.toMatchObject({ code: "io" });
    expect(existsSync("/dev/cinnabar-none")).toBe(false);
  });

  it("finds the size of a block special file, and trims it by its driver", async (context) => {
    const path = newFile();
    await writeFile(path, Buffer.alloc(mib));
    const { stdout, error } = await promisify(execFile)("losetup", ["--find", "--show", path]).then(
      (result) => ({ ...result, error: "" }),
      (reason: Error) => ({ stdout: "", error: reason.message.trim() }),
    );
    if (error !== "") return context.skip(`this process may not make a loop device: ${error}`);
    const disk = stdout.trim();
    try {
      await expect(openFileDevice(disk, { bytes: 2 * mib })).rejects.toThrow(
        `openFileDevice: bytes must be the size of ${disk}, 1048576, or less, it is 2097152`,
      );
      {
        await using part = await openFileDevice(disk, { bytes: mib / 2 });
        expect(await part.grow()).toBe(false);
        expect(part.bytes).toBe(mib / 2);
      }
      await using device = await openFileDevice(disk);
      expect(device).toMatchObject({ bytes: mib, trimsToZero: false });
      await expect(openFileDevice(disk)).rejects.toMatchObject({ code: "in_use" });
      await device.write(0, stamped(mib, 1));
      const full = await spaceOf(path, device);
      await device.trim(0, mib / 2);
      // The driver of loop devices frees, and zeroes are there.
      expect(await device.compare(0, Buffer.alloc(mib / 2))).toBe(true);
      expect(await spaceOf(path, device)).toBeLessThanOrEqual(full - mib / 2);
      expect(await device.extents(0, mib)).toEqual([{ bytes: mib, kind: "data" }]);
      // Zeroes go to the driver, too: they are never refused as slow.
      await device.write(0, stamped(mib, 2));
      await device.writeZeroes(0, mib / 4, { onlyFast: true, fua: true });
      await device.writeZeroes(mib / 2, mib / 4, { onlyFast: true, mayTrim: true });
      const expected = stamped(mib, 2)
        .fill(0, 0, mib / 4)
        .fill(0, mib / 2, (3 * mib) / 4);
      expect(await device.compare(0, expected)).toBe(true);
      expect(await spaceOf(path, device)).toBeLessThanOrEqual(full - mib / 4);
    } finally {
      await promisify(execFile)("losetup", ["--detach", disk]);
    }
  });

  it.each([true, false])(
    "leaves no descriptor where its reservations cannot be read, direct: %s",
    async (isDirect) => {
      const path = newFile();
      await mkdir(`${path}.reservations`);
      await expect(openFileDevice(path, { bytes, isDirect })).rejects.toMatchObject({ code: "io" });
      const descriptors = await readdir("/proc/self/fd");
      const open = await Promise.all(
        descriptors.map((one) => readlink(`/proc/self/fd/${one}`).catch(() => "closed")),
      );
      expect(open).not.toContain(path);
    },
  );

  it("is shared where its lock lets others write, so that hosts of NVMe have no reservations", async () => {
    const path = newFile();
    await (await openFileDevice(path, { bytes })).close();
    for (const [options, isShared] of [
      [{}, false],
      [{ isReadOnly: true }, true],
      [{ isShared: true }, true],
    ] as const) {
      await using device = await openFileDevice(path, options);
      expect(device.isShared).toBe(isShared);
    }
  });

  it("has its file alone, or shares it with others that say so", async () => {
    const path = newFile();
    const refusal = {
      code: "in_use",
      message: `openFileDevice: ${path} is open elsewhere. End the other server, or give isShared to all that are paths to this disk`,
    };
    {
      await using device = await openFileDevice(path, { bytes });
      await expect(openFileDevice(path)).rejects.toMatchObject(refusal);
      await expect(openFileDevice(path, { isReadOnly: true })).rejects.toMatchObject(refusal);
      await expect(openFileDevice(path, { isShared: true })).rejects.toMatchObject(refusal);
      // Nothing was changed by those that were refused.
      await expect(openFileDevice(path, { bytes: 2 * bytes })).rejects.toMatchObject(refusal);
      expect((await stat(path)).size).toBe(bytes);
      await device.write(0, stamped(4096, 1));
    }
    {
      await using one = await openFileDevice(path, { isShared: true });
      await using other = await openFileDevice(path, { isShared: true });
      await using _reader = await openFileDevice(path, { isShared: true, isReadOnly: true });
      await expect(openFileDevice(path)).rejects.toMatchObject(refusal);
      await one.write(0, stamped(4096, 2));
      expect(await other.compare(0, stamped(4096, 2))).toBe(true);
    }
    await using _one = await openFileDevice(path, { isReadOnly: true });
    await using _other = await openFileDevice(path, { isReadOnly: true });
    await expect(openFileDevice(path)).rejects.toMatchObject(refusal);
  });

  /** Space of a file, in bytes. Delayed allocation is over after a flush. */
  async function spaceOf(path: string, device: BlockDevice): Promise<number> {
    await device.flush();
    return 512 * (await stat(path)).blocks;
  }

  it.each([true, false])(
    "gives space back for trims and zeroes, and finds its holes (direct: %s)",
    async (isDirect) => {
      const path = newFile();
      await using device = await openFileDevice(path, { bytes, isDirect });
      const data = stamped(bytes, 1);
      const check = async () => {
        expect((await readAt(device, 0, bytes)).equals(data)).toBe(true);
        expect((await stat(path)).size).toBe(bytes);
      };
      await device.write(0, data);
      const full = await spaceOf(path, device);
      expect(full).toBeGreaterThanOrEqual(bytes);
      await device.trim(mib, mib);
      data.fill(0, mib, 2 * mib);
      await check();
      expect(await spaceOf(path, device)).toBeLessThanOrEqual(full - mib);
      await device.writeZeroes(2 * mib, mib, { mayTrim: true, onlyFast: true, fua: true });
      data.fill(0, 2 * mib, 3 * mib);
      await check();
      expect(await spaceOf(path, device)).toBeLessThanOrEqual(full - 2 * mib);
      await device.writeZeroes(0, 4096, { fua: true });
      data.fill(0, 0, 4096);
      await check();
      expect(await spaceOf(path, device)).toBeGreaterThan(full - 2 * mib - 4096);
      expect(await device.extents(512 * 1024, bytes - 512 * 1024)).toEqual([
        { bytes: 512 * 1024, kind: "data" },
        { bytes: 2 * mib, kind: "hole" },
        { bytes: mib, kind: "data" },
      ]);
      expect(await device.extents(mib, 4096)).toEqual([{ bytes: 4096, kind: "hole" }]);
      await device.trim(0, bytes);
      expect(await spaceOf(path, device)).toBeLessThan(mib / 8);
      expect(await device.extents(0, bytes)).toEqual([{ bytes, kind: "hole" }]);
      data.fill(0);
      await check();
    },
  );

  it("reports a block as data where any part of it has data, and the first of very many extents", async () => {
    const path = newFile();
    const blockBytes = 65_536;
    const total = 400 * mib;
    await using device = await openFileDevice(path, { bytes: total, blockBytes });
    const file = await open(path, "r+");
    await file.write(Buffer.alloc(4096, 1), 0, 4096, 3 * blockBytes + 8192);
    expect(await device.extents(blockBytes, 4 * blockBytes)).toEqual([
      { bytes: 2 * blockBytes, kind: "hole" },
      { bytes: blockBytes, kind: "data" },
      { bytes: blockBytes, kind: "hole" },
    ]);
    // Every second block has data: 3,200 parts, of which one call finds 2,048.
    for (let at = 0; at < total; at += 2 * blockBytes) await file.write(Buffer.alloc(4096, 1), 0, 4096, at);
    await file.close();
    let at = 0;
    let calls = 0;
    while (at < total) {
      const extents = await device.extents(at, total - at);
      expect(extents.length).toBeGreaterThan(0);
      for (const { bytes: length, kind } of extents) {
        if (at > 4 * blockBytes) expect(length).toBe(blockBytes);
        if (at > 4 * blockBytes) expect(kind).toBe((at / blockBytes) % 2 === 0 ? "data" : "hole");
        at += length;
      }
      calls++;
    }
    expect(at).toBe(total);
    expect(calls).toBe(2);
  });

  it("writes zeroes as data where the file system makes holes but has no other way, as tmpfs", async () => {
    const folder = await mkdtemp("/dev/shm/device-");
    const path = join(folder, "disk");
    try {
      await using device = await openFileDevice(path, { bytes });
      const data = stamped(bytes, 1);
      await device.write(0, data);
      await expect(device.writeZeroes(0, mib, { onlyFast: true })).rejects.toMatchObject({
        code: "unsupported",
        message: expect.stringMatching(/writeZeroes: the device has no way that is faster than writing$/),
      });
      expect(await device.compare(0, data)).toBe(true);
      await device.writeZeroes(0, mib);
      data.fill(0, 0, mib);
      expect(await device.compare(0, data)).toBe(true);
      expect(await spaceOf(path, device)).toBe(bytes);
      await device.trim(0, bytes);
      expect(await spaceOf(path, device)).toBe(0);
    } finally {
      // The file beside it that keeps the UUID goes, too.
      await rm(folder, { recursive: true });
    }
  });

  it("fails a read of a file that somebody cut, and no other", async () => {
    const path = newFile();
    await using device = await openFileDevice(path, { bytes });
    await truncate(path, mib);
    await expect(readAt(device, mib - 4096, 8192)).rejects.toMatchObject({
      code: "io",
      message: expect.stringMatching(/read: the file ends at \d+: somebody cut it$/),
    });
    expect((await readAt(device, 0, 4096)).length).toBe(4096);
  });
});
