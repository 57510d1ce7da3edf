import { totalmem } from "node:os";
import { getHeapStatistics } from "node:v8";
import { describe, expect, it } from "vitest";
import { defaultMemoryBytes, deriveLimits, leastMemoryBytes, processMemory } from "./engine-limits.ts";

const kibi = 1024;
const mebi = 1024 * kibi;
const gibi = 1024 * mebi;

describe("the limits that derive from a budget", () => {
  it("are the documented ones with 10 GiB", () => {
    expect(deriveLimits(10 * gibi, 4 * gibi)).toEqual({
      memoryBytes: 10 * gibi,
      maxBodyBytes: 512 * mebi,
      maxValueBytes: 64 * mebi,
      maxDecodedBytes: gibi,
      maxPullBytes: gibi,
      maxOfferBytes: gibi,
      maxBodyStallMs: 10_000,
      maxStreamBytes: 256 * mebi,
      maxRequests: 4096,
      maxRequestsInAll: 65_536,
      maxQueuedBytes: 8 * mebi,
      maxQueuedBytesInAll: 512 * mebi,
      maxPoolBytes: gibi,
      maxConnections: 2048,
      maxIdleConnectionMs: 30_000,
      maxSessions: 1024,
      maxSessionsByPeer: 64,
      maxReplayCalls: 16_384,
      maxReplayBytes: 64 * mebi,
      maxReplayMs: 60_000,
    });
  });

  it("follow the heap, too, where they count in it", () => {
    const [wide, narrow] = [deriveLimits(40 * gibi, 16 * gibi), deriveLimits(40 * gibi, gibi)];
    expect(narrow).toMatchObject({ maxDecodedBytes: gibi / 4, maxRequestsInAll: 16_384 });
    // Bytes outside the heap do not follow the heap.
    expect(narrow.maxPullBytes).toBe(4 * gibi);
    expect(wide).toMatchObject({ maxDecodedBytes: 4 * gibi, maxRequestsInAll: 262_144 });
  });

  it("have ceilings where more than memory is at stake", () => {
    expect(deriveLimits(1024 * gibi, 1024 * gibi)).toMatchObject({
      maxBodyBytes: 512 * mebi,
      maxValueBytes: 64 * mebi,
      maxRequests: 4096,
      maxQueuedBytes: 8 * mebi,
      maxSessions: 1024,
      maxSessionsByPeer: 64,
    });
  });
});

describe("the default budget", () => {
  it("is half of the memory, or 2.5 times the heap limit", () => {
    expect(defaultMemoryBytes({ totalBytes: 24 * gibi, heapBytes: 4 * gibi })).toBe(10 * gibi);
    expect(defaultMemoryBytes({ totalBytes: 8 * gibi, heapBytes: 2 * gibi })).toBe(4 * gibi);
    expect(defaultMemoryBytes({ totalBytes: 256 * gibi, heapBytes: 32 * gibi })).toBe(80 * gibi);
    expect(defaultMemoryBytes({ totalBytes: 256 * mebi, heapBytes: 176 * mebi })).toBe(128 * mebi);
  });

  it("is divided by the engines of a process, whose heaps are their own", () => {
    expect(defaultMemoryBytes({ totalBytes: 24 * gibi, heapBytes: 4 * gibi }, 4)).toBe(3 * gibi);
    expect(defaultMemoryBytes({ totalBytes: 256 * gibi, heapBytes: gibi }, 4)).toBe(2.5 * gibi);
  });

  it("is never less than what an engine needs", () => {
    expect(defaultMemoryBytes({ totalBytes: 64 * mebi, heapBytes: 48 * mebi })).toBe(leastMemoryBytes);
  });

  it("knows the memory of this process", () => {
    const { totalBytes, heapBytes } = processMemory();
    expect(heapBytes).toBe(getHeapStatistics().heap_size_limit);
    expect(totalBytes).toBeGreaterThan(0);
    expect(totalBytes).toBeLessThanOrEqual(totalmem());
  });
});
