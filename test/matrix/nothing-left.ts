import { afterAll, expect, vi } from "vitest";
import { filesLeft } from "./at-rest.ts";

/** libfabric's settings and those of vitest; an engine that opens sets libfabric's once for its process. */
const setByOthers = /^(?:FI_|VITEST)/;
const before = { ...process.env };

// For every test file, and all that it imports: the processes that later files of this process start have its
// environment.
afterAll(() => {
  const names = Object.keys({ ...before, ...process.env }).filter((name) => !setByOthers.test(name));
  expect(names.filter((name) => process.env[name] !== before[name])).toEqual([]);
});

// For every test file: its tests may leave nothing in the shared-memory folder.
afterAll(async () => {
  await vi.waitFor(() => expect(filesLeft()).toEqual([]), { timeout: 5000, interval: 10 });
});
