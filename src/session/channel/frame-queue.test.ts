import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { ByteBudget } from "../../base/flow/byte-budget.ts";
import { type FrameChunk, FrameQueue } from "./frame-queue.ts";

/** A step of one of two queues: a frame of so many times eight bytes, the same in reserved room, or some that leave. */
const step = fc.record({
  queue: fc.integer({ min: 0, max: 1 }),
  what: fc.constantFrom("place", "reserve", "give up", "move", "clear"),
  words: fc.integer({ min: 1, max: 200 }),
});

describe("the queue of frames that wait", () => {
  it("gives every frame back whole and in order, whatever memory it lies in, and holds nothing in the end", () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 200 }), (steps) => {
        const budget = new ByteBudget(1e9);
        const queues = [0, 1].map(() => ({
          queue: new FrameQueue(budget.share()),
          expected: [] as number[],
        }));
        let next = 0;
        const fill = (chunk: FrameChunk, bytes: number, expected: number[]) => {
          next = (next + 1) % 256;
          chunk.bytes.fill(next, chunk.used - bytes, chunk.used);
          for (let i = 0; i < bytes; i++) expected.push(next);
        };
        const move = ({ queue, expected }: (typeof queues)[number], room: number) => {
          const target = new Uint8Array(room);
          const { bytes } = queue.moveTo(target, 0, room);
          expect([...target.subarray(0, bytes)]).toEqual(expected.splice(0, bytes));
        };
        for (const { queue: index, what, words } of steps) {
          const one = queues[index] as (typeof queues)[number];
          const bytes = 8 * words;
          if (what === "place") fill(one.queue.place(bytes) as FrameChunk, bytes, one.expected);
          else if (what === "move") move(one, 4096);
          else if (what === "clear") {
            one.queue.clear();
            one.expected.length = 0;
          } else {
            const chunk = one.queue.reserve(bytes);
            if (chunk === undefined) continue;
            // What comes meanwhile does not lie in the reserved room.
            const other = one.queue.place(16) as FrameChunk;
            expect(other).not.toBe(chunk);
            one.queue.keep(what === "give up" ? 0 : bytes);
            if (what === "reserve") fill(chunk, bytes, one.expected);
            fill(other, 16, one.expected);
          }
          expect(one.queue.bytes).toBe(one.expected.length);
        }
        for (const one of queues) {
          while (one.expected.length > 0) move(one, 4096);
          one.queue.clear();
        }
        expect(budget.bytes).toBe(0);
      }),
    );
  });

  it("lends nobody a chunk in which a frame is still being made", () => {
    const share = new ByteBudget(1e9).share();
    const queue = new FrameQueue(share);
    const other = new FrameQueue(share);
    const reserved = queue.reserve(64) as FrameChunk;
    queue.clear();
    expect(other.place(64)?.bytes).not.toBe(reserved.bytes);
  });
});
