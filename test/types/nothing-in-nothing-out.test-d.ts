import { z } from "zod";
import type { Client } from "../../src/client/client.ts";
import type { HandlerOutputOf, InputOf, OutputOf } from "../../src/contract/infer.ts";
import type { VoidSchema } from "../../src/contract/schema.ts";
import { service } from "../../src/contract/service.ts";
import { unary } from "../../src/contract/unary.ts";
import type { Equal, Expect } from "./expect-type.ts";
import { type FramesHandlers, frames, type Methods } from "./frames.ts";

// A method without input or output has none, also inside `service`, whose own type must not widen it.
export type NoInput = Expect<Equal<InputOf<Methods["ping"]>, void>>;
export type NoOutput = Expect<Equal<OutputOf<Methods["ping"]>, void>>;
export type NoHandlerOutput = Expect<Equal<HandlerOutputOf<Methods["store"]>, void>>;
export type InsideService = Expect<Equal<Methods["ping"]["input"], VoidSchema>>;
const empty = unary({});
export type ByItself = Expect<Equal<(typeof empty)["output"], VoidSchema>>;

// It is called without arguments, or with options.
export const pinged: Promise<void> = frames.ping();
frames.ping({ timeoutMs: 5 });
frames.ping.result().then((result) => result.ok);
export const now: Promise<Date> = frames.now();

frames.ping.result({ timeoutMs: 5 }).then((result) => result.ok);

// @ts-expect-error TS2353 an input where none is taken
frames.ping({ path: "/" });
// @ts-expect-error TS2554 options behind an input that the method does not take
frames.ping(undefined, { timeoutMs: 5 });

// A schema of no value that the contract names takes its place all the same.
const named = service("named.v1", { wait: unary({ input: z.void() }) });
declare const client: Client<typeof named>;
client.wait(undefined, { timeoutMs: 5 });
// @ts-expect-error TS2345 options in the place of the input
client.wait({ timeoutMs: 5 });

export const handlers: Pick<FramesHandlers, "ping" | "store" | "now"> = {
  ping() {},
  async store({ body }) {
    body.fill(0);
  },
  now: () => new Date(0),
};
export const wrongHandlers: Pick<FramesHandlers, "ping" | "store"> = {
  // @ts-expect-error TS2322 an output where there is none
  ping: () => 7,
  // @ts-expect-error TS2322 a promise of an output where there is none
  store: async ({ body }) => body.byteLength,
};
