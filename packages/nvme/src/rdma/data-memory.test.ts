import { expect, it } from "vitest";
import { numbersFrom } from "../numbers.test-support.ts";
import { DataMemory, type DataPart } from "./data-memory.ts";
import { FakeMemory, registered } from "./fake-pair.test-support.ts";

const page = 4096;

it("gives whole pages to takers in order, and joins what comes back", async () => {
  const memory = new DataMemory(registered(new FakeMemory(4 * page)));
  const first = await memory.take(page + 1);
  const second = await memory.take(512);
  expect([first.offset, first.buffer.length, second.offset]).toEqual([0, page + 1, 2 * page]);
  expect(memory.freeBytes).toBe(page);
  const came: number[] = [];
  const noted = async (bytes: number) => {
    const part = await memory.take(bytes);
    came.push(part.bytes / page);
    return part;
  };
  const whole = noted(4 * page);
  // This request would fit, but an earlier request waits.
  const small = noted(page);
  memory.giveBack(second);
  await Promise.resolve();
  expect(came).toEqual([]);
  memory.giveBack(first);
  const all = await whole;
  expect([all.offset, came]).toEqual([0, [4]]);
  memory.giveBack(all);
  memory.giveBack(await small);
  expect([came, memory.freeBytes]).toEqual([[4, 1], 4 * page]);
});

it("never gives bytes to two, whatever the order", async () => {
  const next = numbersFrom(7);
  const pages = 64;
  const memory = new DataMemory(registered(new FakeMemory(pages * page)));
  const owners = new Array<number>(pages).fill(0);
  const held: DataPart[] = [];
  const pagesOf = ({ offset, bytes }: DataPart) =>
    Array.from({ length: Math.ceil(bytes / page) }, (_, index) => offset / page + index);
  const waiting = new Set<Promise<void>>();
  for (let round = 0; round < 5000; round++) {
    if (next(2) === 0) {
      const taking = memory.take(1 + next(16 * page)).then((part) => {
        for (const one of pagesOf(part)) owners[one] = (owners[one] as number) + 1;
        held.push(part);
        waiting.delete(taking);
      });
      waiting.add(taking);
    } else if (held.length > 0) {
      const [part] = held.splice(next(held.length), 1) as [DataPart];
      for (const one of pagesOf(part)) owners[one] = (owners[one] as number) - 1;
      memory.giveBack(part);
    }
    await Promise.resolve();
    expect(Math.max(...owners)).toBeLessThanOrEqual(1);
  }
  while (held.length > 0 || waiting.size > 0) {
    for (const part of held.splice(0)) {
      for (const one of pagesOf(part)) owners[one] = (owners[one] as number) - 1;
      memory.giveBack(part);
    }
    await Promise.resolve();
  }
  expect([memory.freeBytes, Math.max(...owners)]).toEqual([pages * page, 0]);
  expect((await memory.take(pages * page)).offset).toBe(0);
});
