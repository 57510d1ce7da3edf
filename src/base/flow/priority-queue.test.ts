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
  for (let next = queue.shift(); next !== undefined; next = queue.shift()) items.push(next);
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
    expect([queue.size, queue.bytes]).toEqual([0, 0]);
    expect(queue.shift()).toBeUndefined();
  });

  it("lets control go first, and the others by weight, so that none starves", () => {
    const queue = queueOf([
      ...many(100, "low"),
      ...many(100, "normal"),
      ...many(100, "high"),
      ...many(3, "control"),
    ]);
    const order = drained(queue).map(({ priority }) => priority);
    expect(order.slice(0, 3)).toEqual(["control", "control", "control"]);
    const round = order.slice(3, 3 + 13);
    const count = (priority: Priority) => round.filter((each) => each === priority).length;
    expect([count("high"), count("normal"), count("low")]).toEqual([8, 4, 1]);
  });

  it("gives a class that is alone all turns", () => {
    expect(drained(queueOf(many(50, "low")))).toHaveLength(50);
  });

  it("forgets what its owner deletes", () => {
    const [a, b, c] = many(3, "high") as [Item, Item, Item];
    const queue = queueOf([a, b, c]);
    expect(queue.delete(b)).toBe(true);
    expect(queue.delete(b)).toBe(false);
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
    expect(queue.push(item("low", 5000))).toEqual([]);
    expect(queue.push(item("low", 1))).toBeUndefined();
  });

  it("puts out the latest of the class that has most for its weight, and no more than it must", () => {
    const low = many(2, "low");
    const normal = many(2, "normal");
    const queue = queueOf([...low, ...normal], 4);
    expect(queue.push(item("high"))).toEqual([low[1]]);
    expect(queue.push(item("low"))).toBeUndefined();
    // The last of a class stays.
    expect(queue.push(item("high"))).toEqual([normal[1]]);
    expect(queue.push(item("high"))).toBeUndefined();
    expect(queue.push(item("control"))).toHaveLength(1);
    expect([queue.size, queue.sizeOf("low"), queue.sizeOf("normal")]).toEqual([4, 1, 1]);
  });

  it("lets the first of a more urgent class put out the last of a less urgent one", () => {
    const [low] = many(1, "low") as [Item];
    const queue = queueOf([low], 1);
    const high = item("high");
    expect(queue.push(high)).toEqual([low]);
    expect(queue.push(low)).toBeUndefined();
    expect(queue.push(item("control"))).toEqual([high]);
  });

  it("keeps each class its share of the room, however many more urgent ones come", () => {
    const queue = queueOf([], 26);
    const flood = () => {
      for (let i = 0; i < 100; i++) queue.push(item("high"));
    };
    flood();
    expect(queue.sizeOf("high")).toBe(26);
    for (let i = 0; i < 100; i++) queue.push(item("normal"));
    for (let i = 0; i < 100; i++) queue.push(item("low"));
    flood();
    expect(["high", "normal", "low"].map((each) => queue.sizeOf(each as Priority))).toEqual([16, 8, 2]);
    for (let i = 0; i < 30; i++) queue.push(item("control"));
    expect([queue.size, queue.sizeOf("control")]).toEqual([26, 26]);
    expect(queue.push(item("control"))).toBeUndefined();
  });

  it("knows of each class the oldest, and its bytes", () => {
    const items = many(3, "low");
    const queue = queueOf([...items, item("high", 9)]);
    expect([queue.oldest("low"), queue.oldest("normal")]).toEqual([items[0], undefined]);
    queue.delete(items[0] as Item);
    expect([queue.oldest("low"), queue.bytesOf("low"), queue.bytesOf("high")]).toEqual([items[1], 2, 9]);
  });

  it("changes nothing when even putting out would not make room", () => {
    const queue = queueOf([item("high", 500), item("low", 400)]);
    expect(queue.push(item("high", 700))).toBeUndefined();
    expect([queue.size, queue.bytes]).toEqual([2, 900]);
  });
});
