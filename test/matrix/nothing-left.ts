import { afterAll, expect, vi } from "vitest";
import { filesLeft } from "./at-rest.ts";

/** Settings of libfabric and libibverbs, which an engine that opens sets once for its process, and those of vitest. */
const setByOthers = /^(?:FI_|RDMAV_|VITEST)/;
const before = { ...process.env };

// For every test file but units, and all that it imports: the processes that later files of this process start have its
// environment.
afterAll(() => {
  const names = Object.keys({ ...before, ...process.env }).filter((name) => !setByOthers.test(name));
  expect(names.filter((name) => process.env[name] !== before[name])).toEqual([]);
});

// For every test file but units: its tests may leave nothing in the shared-memory folder.
afterAll(async () => {
  await vi.waitFor(() => expect(filesLeft()).toEqual([]), { timeout: 5000, interval: 10 });
});
