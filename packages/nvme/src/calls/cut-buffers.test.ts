import { expect, it } from "vitest";
import { CutBuffers } from "./cut-buffers.ts";

it("gives buffers that do not overlap, short ones from the same memory", () => {
  const cut = new CutBuffers();
  const lengths = [16, 4112, 0, 4112, 16_384, 16_385, 28_688, 4112, 16_384, 16_384, 4112, 16_384];
  const buffers = lengths.map((length, index) => cut.take(length).fill(index));
  for (const [index, buffer] of buffers.entries()) {
    expect(buffer).toHaveLength(lengths[index] as number);
    expect(buffer.every((byte) => byte === index)).toBe(true);
  }
  expect(buffers[1]?.buffer).toBe(buffers[0]?.buffer);
  expect(buffers[5]?.buffer.byteLength).toBe(16_385);
});
