import { expect, it } from "vitest";
import { SpareBuffers } from "./spare-buffers.ts";

it("gives what was given back to who wants the same length", () => {
  const buffers = new SpareBuffers();
  const one = buffers.take(4096);
  const other = buffers.take(4096);
  expect(other).not.toBe(one);
  buffers.giveBack(one);
  expect(buffers.take(8192)).toHaveLength(8192);
  expect(buffers.take(4096)).toBe(one);
  expect(buffers.take(4096)).not.toBe(one);
});

it("keeps 256 KiB, and the length that was wanted last", () => {
  const buffers = new SpareBuffers();
  const few = Array.from({ length: 64 }, () => buffers.take(4096));
  const long = buffers.take(65_536);
  const tooLong = buffers.take(257 * 1024);
  for (const one of few) buffers.giveBack(one);
  buffers.giveBack(tooLong);
  expect(buffers.take(257 * 1024)).not.toBe(tooLong);
  expect(few).toContain(buffers.take(4096));
  buffers.giveBack(long);
  expect(few).not.toContain(buffers.take(4096));
  expect(buffers.take(65_536)).toBe(long);
});
