import { describe, expect, it } from "vitest";
import { numbersFrom } from "../numbers.test-support.ts";
import type { BlockDevice } from "./block-device.ts";
import { losesPower } from "./loses-power.ts";
import { memoryDevice } from "./memory-device.ts";

const block = 512;
const blocks = 32;
const newDisk = () => memoryDevice({ bytes: block * blocks, blockBytes: block });

async function valueAt(device: BlockDevice, index: number): Promise<number> {
  const into = Buffer.alloc(block);
  await device.read(index * block, into);
  const value = into.readUInt32LE(0);
  if (!into.equals(valued(value))) throw new Error(`block ${index} is torn`);
  return value;
}

const valued = (value: number, count = 1) => {
  const data = Buffer.alloc(block * count);
  for (let at = 0; at < data.length; at += 4) data.writeUInt32LE(value, at);
  return data;
};

describe("a device that loses power", () => {
  it("has what was flushed or written with FUA, and forgets the rest", async () => {
    await using device = losesPower(newDisk());
    await device.write(0, valued(1));
    await device.flush();
    await device.write(0, valued(2));
    await device.write(block, valued(3), { fua: true });
    await device.write(2 * block, valued(4));
    expect(await valueAt(device, 0)).toBe(2);
    await device.cutPower();
    expect(device.isPowered).toBe(false);
    await device.restorePower();
    expect(await Promise.all([0, 1, 2].map((index) => valueAt(device, index)))).toEqual([1, 3, 0]);
  });

  it("has the reservations of the device behind it, or none where that is shared", async () => {
    for (const isShared of [true, false]) {
      const reservations = { kept: "kept", write: async () => {} };
      await using device = losesPower(Object.assign(newDisk(), { isShared, reservations }));
      expect(device).toMatchObject({ isShared, reservations });
    }
  });

  it("forgets trims and zeroes that were not flushed", async () => {
    await using device = losesPower(newDisk());
    await device.write(0, valued(1, 4), { fua: true });
    await device.trim(0, block);
    await device.writeZeroes(block, block);
    await device.writeZeroes(2 * block, block, { fua: true });
    expect(await Promise.all([0, 1, 2, 3].map((index) => valueAt(device, index)))).toEqual([0, 0, 0, 1]);
    await device.cutPower();
    await device.restorePower();
    // writeZeroes with FUA ends with a flush, which covers what was answered before.
    expect(await Promise.all([0, 1, 2, 3].map((index) => valueAt(device, index)))).toEqual([0, 0, 0, 1]);
  });

  it("fails what is under way at the cut and what comes until the power is back", async () => {
    await using device = losesPower(newDisk());
    const under = [device.write(0, valued(1), { fua: true }), device.flush(), device.write(block, valued(1))];
    const ends = Promise.allSettled(under);
    await device.cutPower();
    for (const end of await ends)
      expect(end).toMatchObject({ status: "rejected", reason: { code: "power_lost" } });
    await expect(device.flush()).rejects.toMatchObject({
      code: "power_lost",
      message: "losesPower: flush: the power is off",
    });
    await device.restorePower();
    await device.flush();
  });

  it.each([1, 2, 3, 4, 5])("keeps every acknowledged flush through cuts at random, seed %i", async (seed) => {
    const next = numbersFrom(seed);
    const device = losesPower(newDisk(), {
      cacheBytes: (1 + next(8)) * block,
      keeps: () => next(2) === 0,
    });
    /** What each block may hold after a cut: the durable value first, then all that came later. */
    const may = Array.from({ length: blocks }, () => [0]);
    let value = 0;
    for (let step = 0; step < 400; step++) {
      const index = next(blocks);
      const kind = next(14);
      if (kind < 8) {
        const fua = kind === 0;
        value++;
        await device.write(index * block, valued(value), { fua });
        if (fua) may[index] = [value];
        else may[index]?.push(value);
      } else if (kind === 8) {
        await device.flush();
        for (const values of may) values.splice(0, values.length - 1);
      } else if (kind === 9) {
        await device.cutPower();
        await device.restorePower();
        for (const [at, values] of may.entries()) {
          const found = await valueAt(device, at);
          if (!values.includes(found)) expect(values, `block ${at} after step ${step}`).toContain(found);
          // What a cut left is on the disk.
          may[at] = [found];
        }
      } else if (kind === 10 || kind === 11) {
        // Zeroes and trims of some blocks are writes like any other.
        const bytes = Math.min(1 + next(3), blocks - index) * block;
        if (kind === 10) await device.trim(index * block, bytes);
        else await device.writeZeroes(index * block, bytes, { mayTrim: true });
        for (const values of may.slice(index, index + bytes / block)) values.push(0);
      } else expect(await valueAt(device, index)).toBe(may[index]?.at(-1));
    }
  });

  it("shows a program whose flush does nothing", async () => {
    const honest = losesPower(newDisk());
    const lying: BlockDevice = Object.assign(Object.create(honest), { flush: async () => {} });
    await honest.write(0, valued(1));
    await lying.flush();
    await honest.cutPower();
    await honest.restorePower();
    expect(await valueAt(honest, 0)).toBe(0);
  });
});
