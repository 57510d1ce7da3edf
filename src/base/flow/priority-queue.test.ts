import { describe, expect, it } from "vitest";
import type { Priority } from "./priority.ts";
import { PriorityQueue } from "./priority-queue.ts";

interface Item {
  readonly name: string;
  readonly priority: Priority;
  readonly waitingBytes: number;
}

let made = 0;
const item = (priority: Priority, waitingBytes = 1): Item => ({
  name: `${priority}${made++}`,
  priority,
  waitingBytes,
});

const queueOf = (items: readonly Item[], maxCalls = 1000, maxBytes = 1000) => {
  const queue = new PriorityQueue<Item>({ maxCalls, maxBytes });
  for (const each of items) expect(queue.push(each)).toEqual([]);
  return queue;
};

const drained = (queue: PriorityQueue<Item>) => {
  const items: Item[] = [];
  for (let turn = queue.turn; turn !== undefined; turn = queue.turn) {
    const next = queue.oldest(turn) as Item;
    queue.delete(next);
    items.push(next);
  }
  return items;
};

const many = (count: number, priority: Priority) => Array.from({ length: count }, () => item(priority));

describe("a queue by priority", () => {
  it("keeps the order within a class, and counts what waits", () => {
    const items = many(5, "normal");
    const queue = queueOf(items);
    expect([queue.size, queue.bytes]).toEqual([5, 5]);
    expect([...queue]).toEqual(items);
    expect(drained(queue)).toEqual(items);
    expect([queue.size, queue.bytes, queue.turn]).toEqual([0, 0, undefined]);
  });

  it("lets control go first, whenever it comes", () => {
    const [normal, control] = [many(3, "normal"), many(2, "control")];
    const [a, b, c] = normal as [Item, Item, Item];
    const [d, e] = control as [Item, Item];
    const queue = queueOf([a, d, b, c, e]);
    expect([...queue]).toEqual([d, e, a, b, c]);
    expect(drained(queue)).toEqual([d, e, a, b, c]);
  });

  it("forgets what its owner deletes", () => {
    const [a, b, c] = many(3, "normal") as [Item, Item, Item];
    const queue = queueOf([a, b, c]);
    expect(queue.delete(b)).toBe(true);
    expect(queue.delete(b)).toBe(false);
    expect([queue.oldest("normal"), queue.newest("normal"), queue.oldest("control")]).toEqual([
      a,
      c,
      undefined,
    ]);
    expect(drained(queue)).toEqual([a, c]);
  });

  it("is bounded in number and in bytes", () => {
    const queue = queueOf(many(2, "normal"), 2);
    expect(queue.push(item("normal"))).toBeUndefined();
    expect(queue.size).toBe(2);
    const heavy = queueOf([item("normal", 600)]);
    expect(heavy.push(item("normal", 401))).toBeUndefined();
    expect(heavy.push(item("normal", 400))).toEqual([]);
    expect(heavy.bytes).toBe(1000);
  });

  it("takes what is longer than all its room when nothing else waits", () => {
    const queue = queueOf([]);
    expect(queue.push(item("normal", 5000))).toEqual([]);
    expect(queue.push(item("normal", 1))).toBeUndefined();
  });

  it("lets control put out the latest of the others, and no more than it must", () => {
    const normal = many(3, "normal");
    const queue = queueOf(normal, 3);
    expect(queue.push(item("control"))).toEqual([normal[2]]);
    expect(queue.push(item("normal"))).toBeUndefined();
    expect(queue.push(item("control"))).toEqual([normal[1]]);
    expect(queue.push(item("control"))).toEqual([normal[0]]);
    expect(queue.push(item("control"))).toBeUndefined();
    expect([queue.size, queue.sizeOf("control"), queue.sizeOf("normal")]).toEqual([3, 3, 0]);
  });

  it("makes room in bytes by as many as it takes", () => {
    const [a, b, c] = [item("normal", 500), item("normal", 300), item("normal", 200)];
    const queue = queueOf([a, b, c]);
    expect(queue.push(item("control", 400))).toEqual([c, b]);
    expect([queue.size, queue.bytes]).toEqual([2, 900]);
  });

  it("changes nothing when even putting out would not make room", () => {
    const queue = queueOf([item("control", 500), item("normal", 400)]);
    expect(queue.push(item("control", 700))).toBeUndefined();
    expect([queue.size, queue.bytes]).toEqual([2, 900]);
  });
});
