import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { ChosenSlots, SlotGenerations, SlotTable } from "./slot-table.ts";

const slotOf = (id: number): number => id & 0xfffff;
const generationOf = (id: number): number => id >>> 20;

describe("chosen slots", () => {
  it("number by slot and generation, each slot for one at a time", () => {
    const slots = new ChosenSlots<string>();
    const first = slots.take(9000, "a");
    expect([generationOf(first), slotOf(first), slots.isFree(9000), slots.isFree(1)]).toEqual([
      1,
      9000,
      false,
      true,
    ]);
    expect([slots.get(first), slots.size, [...slots]]).toEqual(["a", 1, ["a"]]);
    slots.release(first);
    const second = slots.take(9000, "b");
    expect([generationOf(second), slots.get(first), slots.get(second)]).toEqual([2, undefined, "b"]);
    slots.takeBack(second);
    expect([slots.take(9000, "c"), slots.isFree(2 ** 20)]).toEqual([second, false]);
  });
});

describe("slot table", () => {
  it("numbers by slot and generation, from generation 1", () => {
    const table = new SlotTable<string>(4);
    const ids = ["a", "b", "c"].map((item) => table.take(item));
    expect(ids.map((id) => [generationOf(id), slotOf(id)])).toEqual([
      [1, 0],
      [1, 1],
      [1, 2],
    ]);
    expect(ids.map((id) => table.get(id))).toEqual(["a", "b", "c"]);
  });

  it("gives 0 when it is full, and a number again after a release", () => {
    const table = new SlotTable<number>(2);
    const first = table.take(1);
    table.take(2);
    expect(table.take(3)).toBe(0);
    expect(table.size).toBe(2);
    table.release(first);
    expect(slotOf(table.take(3))).toBe(slotOf(first));
  });

  it("holds nothing at a capacity of 0", () => expect(new SlotTable(0).take({})).toBe(0));

  it("does not know a number after its release, nor after the slot's next use", () => {
    const table = new SlotTable<string>(1);
    const old = table.take("old");
    table.release(old);
    expect(table.get(old)).toBeUndefined();
    const fresh = table.take("fresh");
    expect(fresh).not.toBe(old);
    expect(table.get(old)).toBeUndefined();
    table.release(old);
    expect(table.get(fresh)).toBe("fresh");
  });

  it("releases once", () => {
    const table = new SlotTable<string>(2);
    const id = table.take("a");
    table.release(id);
    table.release(id);
    expect(table.size).toBe(0);
    expect(new Set([slotOf(table.take("b")), slotOf(table.take("c"))]).size).toBe(2);
  });

  it("knows no number it never gave", () => {
    const table = new SlotTable<string>(8);
    const id = table.take("a");
    for (const other of [0, 1, 7, id + 1, id ^ 0x8000_0000, 0xffff_ffff]) {
      expect(table.get(other)).toBeUndefined();
      table.release(other);
    }
    expect(table.get(id)).toBe("a");
  });

  it("runs through 4095 generations, always positive and never 0", () => {
    const table = new SlotTable<number>(1);
    const seen = new Set<number>();
    for (let i = 0; i < 4095; i++) {
      const id = table.take(i);
      expect(id).toBeGreaterThan(0);
      seen.add(id);
      table.release(id);
    }
    expect(seen.size).toBe(4095);
    expect(generationOf(table.take(0))).toBe(1);
  });

  it("gives a number again that was taken back", () => {
    const table = new SlotTable<string>(2);
    for (let i = 0; i < 5000; i++) {
      const id = table.take("a");
      expect([generationOf(id), slotOf(id)]).toEqual([1, 0]);
      table.takeBack(id);
      table.takeBack(id);
      expect([table.size, table.get(id)]).toEqual([0, undefined]);
    }
    table.release(table.take("a"));
    expect(generationOf(table.take("a"))).toBe(2);
  });

  it("agrees with a Map over random operations", () => {
    const step = fc.record({ take: fc.boolean(), pick: fc.nat() });
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 12 }), fc.array(step, { maxLength: 200 }), (capacity, steps) => {
        const table = new SlotTable<object>(capacity);
        const model = new Map<number, object>();
        const old: number[] = [];
        for (const { take, pick } of steps) {
          if (take) {
            const item = {};
            const id = table.take(item);
            expect(id === 0).toBe(model.size === capacity);
            if (id !== 0) {
              expect(model.has(id)).toBe(false);
              expect(slotOf(id)).toBeLessThan(capacity);
              model.set(id, item);
            }
          } else if (model.size > 0) {
            const id = [...model.keys()][pick % model.size] as number;
            table.release(id);
            model.delete(id);
            old.push(id);
          }
          expect(table.size).toBe(model.size);
          expect(new Set(table)).toEqual(new Set(model.values()));
          for (const [id, item] of model) expect(table.get(id)).toBe(item);
          for (const id of old) expect(table.get(id)).toBeUndefined();
        }
      }),
      { numRuns: 100 },
    );
  });
});

describe("slot generations", () => {
  const id = (generation: number, slot: number): number => ((generation << 20) | slot) >>> 0;

  it("accept each number of a table once, round and round", () => {
    const table = new SlotTable<number>(1);
    const seen = new SlotGenerations();
    for (let i = 0; i < 10_000; i++) {
      const number = table.take(i);
      expect([seen.advance(number), seen.advance(number)]).toEqual([true, false]);
      table.release(number);
    }
  });

  it("refuse what is older than the last in its slot, and leave the other slots alone", () => {
    const seen = new SlotGenerations();
    expect(seen.advance(id(7, 3))).toBe(true);
    expect([1, 5, 6, 7, 7 + 2048].map((generation) => seen.advance(id(generation, 3)))).toEqual(
      new Array(5).fill(false),
    );
    expect(
      [id(8, 3), id(2000, 3), id(4000, 3), id(5, 3), id(1, 4)].map((number) => seen.advance(number)),
    ).toEqual(new Array(5).fill(true));
  });
});
