import { describe, expect, it } from "vitest";
import {
  deriveLimits,
  type EngineLimits,
  type LimitOptions,
  leastDecodedBytes,
  leastMemoryBytes,
} from "../base/flow/engine-limits.ts";
import { maxTimeoutMs } from "../base/options/options.ts";
import { smallInputBytes } from "../session/calls/incoming-calls.ts";
import { leastWindowBytes } from "../session/streams/item-arrivals.ts";
import { stagingPoolBytes } from "../transfer/staging.ts";
import { metadataLimits } from "../wire/metadata/entry.ts";
import { Engine } from "./engine.ts";

const kibi = 1024;
const mebi = 1024 * kibi;
const gibi = 1024 * mebi;

/**
 * What an open request or stream takes beside its input, its window and its metadata: 557 and 971 bytes were measured
 * (docs/design/performance.md).
 */
const requestBytes = kibi;
/** A session with its TCP connection: 31 KB was measured. Another connection without a session: 18 KB of buffers. */
const sessionBytes = 62 * kibi;
const connectionBytes = 18 * kibi;
/** A call that is kept for replay, beside its answer. */
const replayCallBytes = 1.5 * kibi;
/** TLS handshakes of strangers: `handshakes.maxOpen` and the bytes of each. */
const handshakeBytes = 64 * 64 * kibi;

/** The requests that peers may have open together: the limit, and what is reserved for each session. */
function mostRequests({ maxRequestsInAll, maxSessions }: EngineLimits): number {
  return maxRequestsInAll + maxSessions * Math.min(16, Math.floor(maxRequestsInAll / 2 / maxSessions));
}

/** What peers and the pool can make an engine with one port hold at worst: docs/design/budgets.md, row by row. */
function worstBytes(limits: EngineLimits): number {
  const { maxBodyBytes, maxSessions, maxConnections } = limits;
  // A body that comes when nothing is held passes, however long.
  const pulled = Math.max(limits.maxPullBytes, maxBodyBytes);
  const offered = Math.max(limits.maxOfferBytes, maxBodyBytes);
  const decoded = limits.maxDecodedBytes + maxSessions * leastDecodedBytes + limits.maxValueBytes;
  // Items may exceed their windows by a quarter.
  const request = requestBytes + smallInputBytes + metadataLimits.maxBytes + 1.25 * leastWindowBytes;
  return (
    pulled +
    offered +
    decoded +
    1.25 * limits.maxStreamBytes +
    limits.maxQueuedBytesInAll +
    limits.maxPoolBytes +
    limits.maxReplayBytes +
    limits.maxReplayCalls * replayCallBytes +
    mostRequests(limits) * request +
    maxSessions * sessionBytes +
    (maxConnections - maxSessions) * connectionBytes +
    2 * stagingPoolBytes(limits.memoryBytes) +
    handshakeBytes
  );
}

/** The part of it that is in V8's heap. */
function worstHeapBytes(limits: EngineLimits): number {
  return (
    limits.maxDecodedBytes +
    limits.maxSessions * (leastDecodedBytes + 31 * kibi) +
    limits.maxValueBytes +
    limits.maxReplayCalls * replayCallBytes +
    mostRequests(limits) * (requestBytes + metadataLimits.maxBytes)
  );
}

describe("what peers can make an engine hold", () => {
  const budgets = [leastMemoryBytes, 100 * mebi, 128 * mebi, 256 * mebi, 777 * mebi, gibi, 3 * gibi];
  it.each([...budgets, 10 * gibi, 40 * gibi, 400 * gibi])(
    "is at most a budget of %i bytes",
    (memoryBytes) => {
      const limits = deriveLimits(memoryBytes, memoryBytes / 2.5);
      expect(worstBytes(limits)).toBeLessThanOrEqual(memoryBytes);
    },
  );

  it.each([
    [leastMemoryBytes, 176 * mebi],
    [400 * gibi, 176 * mebi],
    [10 * gibi, 4 * gibi],
    [100 * gibi, 4 * gibi],
    [3 * gibi, gibi],
  ])("with a budget of %i bytes is at most 0.75 of a heap of %i bytes in it", (memoryBytes, heapBytes) => {
    const limits = deriveLimits(memoryBytes, heapBytes);
    expect(worstHeapBytes(limits)).toBeLessThanOrEqual(0.75 * heapBytes);
    expect(worstBytes(limits)).toBeLessThanOrEqual(memoryBytes);
  });
});

describe("the limits of an engine", () => {
  const opened = async (limits: LimitOptions, heartbeatMs?: number): Promise<EngineLimits> => {
    await using engine = await Engine.open({ limits, heartbeatMs });
    return engine.limits;
  };

  it("follow the budget that is given, and each can be set beside it, beyond it too", async () => {
    const limits = await opened({ memoryBytes: 100 * mebi, maxPoolBytes: gibi });
    expect(limits).toEqual({ ...deriveLimits(100 * mebi, gibi), maxPoolBytes: gibi });
  });

  it("keep what belongs together", async () => {
    const { maxRequests, maxRequestsInAll } = deriveLimits(100 * mebi, gibi);
    expect(maxRequests).toBe(160);
    const memoryBytes = 100 * mebi;
    expect(await opened({ memoryBytes, maxRequests: 5000 })).toMatchObject({ maxRequestsInAll: 5000 });
    expect(await opened({ memoryBytes, maxRequests: 100 })).toMatchObject({ maxRequestsInAll });
    expect(await opened({ memoryBytes, maxSessions: 5000 })).toMatchObject({
      maxConnections: 10_000,
      maxSessionsByPeer: 1250,
    });
    expect(await opened({ memoryBytes, maxSessions: 10 })).toMatchObject({
      maxConnections: 200,
      maxSessionsByPeer: 25,
    });
    const half = 5 * mebi;
    expect(await opened({ memoryBytes, maxValueBytes: half })).toMatchObject({ maxValueBytes: half });
    await expect(opened({ memoryBytes, maxValueBytes: half + 1 })).rejects.toThrow(
      "limits.maxValueBytes is 5242881, it must be at most 5242880, half of maxDecodedBytes; raise memoryBytes",
    );
  });

  it("give a link with a slow heartbeat more time, and one with a fast heartbeat no less", async () => {
    const times = async (heartbeatMs: number) => {
      const { maxBodyStallMs, maxIdleConnectionMs, maxReplayMs } = await opened({}, heartbeatMs);
      return [maxBodyStallMs, maxIdleConnectionMs, maxReplayMs];
    };
    expect(await times(100)).toEqual([10_000, 30_000, 60_000]);
    expect(await times(5_000)).toEqual([50_000, 150_000, 300_000]);
    expect(await times(1_234.56)).toEqual([12_346, 37_037, 74_074]);
    expect(await times(maxTimeoutMs)).toEqual([maxTimeoutMs, maxTimeoutMs, maxTimeoutMs]);
  });

  it.each<[object, string]>([
    [
      { memoryBytes: 1024 },
      "limits.memoryBytes must be an integer from 67108864 to 9007199254740991, it is 1024",
    ],
    [{ memoryBytes: 1e8 + 0.5 }, "limits.memoryBytes must be an integer"],
    [
      { memoryBytes: "1 GiB" },
      'limits.memoryBytes must be an integer from 67108864 to 9007199254740991, it is "1 GiB"',
    ],
    [{ memoryByte: 2 ** 30 }, 'unknown option "limits.memoryByte"; did you mean "limits.memoryBytes"?'],
  ])("reject %j", async (limits, message) => {
    await expect(Engine.open({ limits: limits as LimitOptions })).rejects.toThrow(message);
  });
});
