import { describe, expect, it } from "vitest";
import { holds, mostSlots, Slots } from "../../bench/bulk/slots.ts";

describe("the memory that is measured", () => {
  it("is found right only where every byte is the side's and the lane's", () => {
    const slots = new Slots(65_536);
    slots.fill(1);
    slots.verify(1, "test");
    expect(() => slots.verify(2, "test")).toThrow("test: slot 0 of 65536 bytes holds something else");
    expect(holds(slots.slot(3), 1, 4)).toBe(false);
    slots.slot(7)[65_535] = (slots.slot(7)[65_535] ?? 0) ^ 1;
    expect(() => slots.verify(1, "test")).toThrow("slot 7");
  });

  it("shows bytes that came to a wrong place", () => {
    const slots = new Slots(65_536);
    slots.fill(1);
    slots.slot(0).copyWithin(4096, 0, 4096);
    expect(() => slots.verify(1, "test")).toThrow("slot 0");
  });

  it("has a slot for each lane until that is too much memory", () => {
    expect(new Slots(4096).count).toBe(mostSlots);
    expect(new Slots(4096).offset(mostSlots + 1)).toBe(4096);
    expect(new Slots(64 << 20).count).toBe(4);
  });
});
