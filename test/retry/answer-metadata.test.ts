import {
  type CallContext,
  type Client,
  implement,
  type Metadata,
  RpcError,
  serverStream,
  service,
  unary,
} from "cinnabar";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { pair } from "../matrix/pair.ts";
import { transports } from "../matrix/providers.ts";
import { failure } from "../matrix/wait.ts";

const Work = service("work.v1", {
  run: unary({ output: z.number(), idempotent: true }),
  slow: unary({ output: z.number(), idempotent: true }),
  items: serverStream({ output: z.number(), idempotent: true }),
});

const often = { retry: { attempts: 3, baseDelayMs: 1, maxDelayMs: 2 }, timeoutMs: 60_000 };

/** Each execution says its number in its metadata, and fails below `good`. */
function numbered(good: number, slow: Promise<void> = Promise.resolve()) {
  let executions = 0;
  const execute = ({ trailers }: CallContext): number => {
    const number = ++executions;
    trailers.set("number", String(number));
    if (number < good) throw new RpcError({ code: "unavailable", message: "not yet" });
    return number;
  };
  return implement(Work, {
    run: (_, call) => execute(call),
    slow: async (_, call) => {
      const number = execute(call);
      if (number === 1) await slow;
      return number;
    },
    async *items(_, call) {
      yield execute(call);
    },
  });
}

async function drained(items: AsyncIterable<number>): Promise<number[]> {
  const got: number[] = [];
  for await (const item of items) got.push(item);
  return got;
}

type CallOf = (work: Client<typeof Work>, onTrailers: (metadata: Metadata) => void) => Promise<unknown>;

const kinds: [string, CallOf][] = [
  ["a call", (work, onTrailers) => work.run({ onTrailers })],
  ["a stream", (work, onTrailers) => drained(work.items({ onTrailers }))],
];

describe.each(transports)("metadata of the answer over $name", (provider) => {
  it.each(kinds)("of %s that is tried again is told once: that of the last attempt", async (_, call) => {
    for (const good of [3, 4]) {
      const { api } = await pair(provider, [numbered(good)]);
      const told: unknown[] = [];
      const outcome = call(api(Work, often), (metadata) => void told.push(metadata.get("number")));
      if (good === 3) await outcome;
      else expect((await failure(outcome)).trailers?.get("number")).toBe("3");
      expect(told).toEqual(["3"]);
    }
  });

  it.each(kinds)(
    "ends %s that may be tried again with internal where its listener throws",
    async (_, call) => {
      for (const good of [1, 4]) {
        const { api } = await pair(provider, [numbered(good)]);
        const mine = new Error("mine");
        const error = await failure(
          call(api(Work, often), () => {
            throw mine;
          }),
        );
        expect(error).toMatchObject({ code: "internal", message: "[internal] onTrailers threw" });
        expect(error.cause).toBe(mine);
      }
    },
  );
});
