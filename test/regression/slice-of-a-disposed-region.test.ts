import { Engine } from "cinnabar";
import { describe, expect, it } from "vitest";

// Only slices that a call held at that moment followed their region; a slice of a slice never did.
describe("the slices of a region that is disposed", () => {
  it("are disposed too, however deep, lent or not", async () => {
    await using engine = await Engine.open();
    const region = engine.expose(new Uint8Array(100), { access: "read" });
    const slice = region.slice(0, 50);
    const inner = slice.slice(0, 10).slice(1);
    region.dispose();
    expect([slice.disposed, inner.disposed]).toEqual([true, true]);
    expect(() => inner.slice(0)).toThrow("the region has been disposed");
  });
});
