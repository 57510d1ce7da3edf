import { afterAll, expect, vi } from "vitest";
import { filesLeft } from "./at-rest.ts";

// Of every test file: after its tests nothing of it may be left in the shared-memory folder.
afterAll(async () => {
  await vi.waitFor(() => expect(filesLeft()).toEqual([]), { timeout: 5000, interval: 10 });
});
