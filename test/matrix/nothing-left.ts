import { afterAll, expect, vi } from "vitest";
import { filesLeft } from "./at-rest.ts";

// For every test file: its tests may leave nothing in the shared-memory folder.
afterAll(async () => {
  await vi.waitFor(() => expect(filesLeft()).toEqual([]), { timeout: 5000, interval: 10 });
});
