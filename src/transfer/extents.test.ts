import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { Extent, RegisteredMemory } from "../fabric/port.ts";
import type { RegionSegment } from "../wire/region-descriptor.ts";
import { CutQueue, type LocalSegment, planExtents, type RegisteredPart, sliceExtent } from "./extents.ts";

const memories: RegisteredMemory[] = [0, 1, 2].map((index) => ({ index, key: 0n, base: 0n }));
const memory = memories[0] as RegisteredMemory;
const local = (offset: number, bytes: number, of = memory): LocalSegment => ({ memory: of, offset, bytes });
const remote = (address: number, bytes: number, key = 1n): RegionSegment => ({
  key,
  address: BigInt(address),
  bytes,
});

/** Each byte of a list of segments as text that gives its position. */
const localBytes = (runs: readonly LocalSegment[]): string[] =>
  runs.flatMap(({ memory: { index }, offset, bytes }) =>
    Array.from({ length: bytes }, (_, i) => `${index}:${offset + i}`),
  );
const remoteBytes = (segments: readonly RegionSegment[]): string[] =>
  segments.flatMap(({ key, address, bytes }) =>
    Array.from({ length: bytes }, (_, i) => `${key}:${address + BigInt(i)}`),
  );

/** The requested bytes of the parts, one at a time. */
const asked = (parts: readonly RegisteredPart[]): string[] =>
  parts.flatMap((part) => {
    const here = localBytes(part.local);
    const there = remoteBytes(part.remote);
    return Array.from(
      { length: part.bytes },
      (_, i) => `${here[part.localOffset + i]}=${there[part.remoteOffset + i]}`,
    );
  });

/** The moved bytes of the extents, one at a time. */
const done = (extents: readonly Extent[]): string[] =>
  extents.flatMap((extent) =>
    Array.from(
      { length: extent.bytes },
      (_, i) => `${extent.local.index}:${extent.offset + i}=${extent.key}:${extent.remote + BigInt(i)}`,
    ),
  );

const part = fc
  .record({
    local: fc.array(
      fc.record({
        memory: fc.constantFrom(...memories),
        offset: fc.integer({ min: 0, max: 30 }),
        bytes: fc.integer({ min: 1, max: 12 }),
      }),
      { minLength: 1, maxLength: 8 },
    ),
    remote: fc.array(
      fc.record({
        key: fc.constantFrom(1n, 2n),
        address: fc.bigInt(0n, 30n),
        bytes: fc.integer({ min: 1, max: 12 }),
      }),
      { minLength: 1, maxLength: 8 },
    ),
    a: fc.nat(),
    b: fc.nat(),
    c: fc.nat(),
  })
  .map(({ a, b, c, ...segments }): RegisteredPart => {
    const sum = (list: readonly { bytes: number }[]) => list.reduce((total, { bytes }) => total + bytes, 0);
    const localOffset = a % (sum(segments.local) + 1);
    const remoteOffset = b % (sum(segments.remote) + 1);
    const most = Math.min(sum(segments.local) - localOffset, sum(segments.remote) - remoteOffset);
    return { ...segments, localOffset, remoteOffset, bytes: c % (most + 1) };
  });

describe("planExtents", () => {
  it("does byte by byte what the parts ask for, in as few extents as can be", () => {
    fc.assert(
      fc.property(fc.array(part, { maxLength: 5 }), (parts) => {
        const plan = planExtents(parts);
        expect(done(plan)).toEqual(asked(parts));
        for (const [i, extent] of plan.entries()) {
          expect(extent.bytes).toBeGreaterThan(0);
          const next = plan[i + 1];
          if (next === undefined) continue;
          const joins =
            next.local === extent.local &&
            next.offset === extent.offset + extent.bytes &&
            next.key === extent.key &&
            next.remote === extent.remote + BigInt(extent.bytes);
          expect(joins).toBe(false);
        }
      }),
      { seed: 20_260_101, numRuns: 500 },
    );
  });

  it("joins parts that go on where the last one ended, on both sides", () => {
    const step = (at: number): RegisteredPart => ({
      remote: [remote(1000, 100)],
      remoteOffset: at,
      local: [local(0, 50), local(50, 50)],
      localOffset: at,
      bytes: 10,
    });
    expect(planExtents([step(40), step(50), step(70)])).toEqual([
      { local: memory, offset: 40, bytes: 20, key: 1n, remote: 1040n },
      { local: memory, offset: 70, bytes: 10, key: 1n, remote: 1070n },
    ]);
  });

  it("plans nothing for nothing", () => {
    const empty = { remote: [], remoteOffset: 0, local: [], localOffset: 0, bytes: 0 };
    expect(planExtents([empty, { ...empty, remote: [remote(0, 5)], local: [local(0, 5)] }])).toEqual([]);
  });

  it("counts beyond 2^32 without loss", () => {
    const far = 2 ** 40 + 5;
    expect(
      planExtents([
        {
          remote: [remote(0, 2 ** 41)],
          remoteOffset: far,
          local: [local(0, 2 ** 41)],
          localOffset: far,
          bytes: 3,
        },
      ]),
    ).toEqual([{ local: memory, offset: far, bytes: 3, key: 1n, remote: BigInt(far) }]);
  });
});

describe("CutQueue", () => {
  it("gives out every byte once and in order, in batches inside their bounds", () => {
    fc.assert(
      fc.property(
        fc.array(part, { maxLength: 5 }),
        fc.integer({ min: 1, max: 40 }),
        fc.integer({ min: 1, max: 5 }),
        (parts, maxBytes, maxExtents) => {
          const plan = planExtents(parts);
          const queue = new CutQueue(plan, sliceExtent);
          const given: string[] = [];
          while (queue.remaining > 0) {
            const { remaining } = queue;
            const batch = queue.take(maxBytes, maxExtents);
            expect(batch.length).toBeLessThanOrEqual(maxExtents);
            const bytes = done(batch);
            expect(bytes.length).toBeGreaterThan(0);
            expect(bytes.length).toBeLessThanOrEqual(maxBytes);
            expect([queue.takenBytes, queue.remaining]).toEqual([bytes.length, remaining - bytes.length]);
            given.push(...bytes);
          }
          expect(given).toEqual(done(plan));
          expect(queue.take(maxBytes, maxExtents)).toEqual([]);
        },
      ),
      { seed: 20_260_102, numRuns: 300 },
    );
  });
});
