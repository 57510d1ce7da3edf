import type { HandlerOutputOf, InputOf, OutputOf } from "../../src/contract/infer.ts";
import type { VoidSchema } from "../../src/contract/schema.ts";
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

// It is called without arguments, or with options behind an `undefined`.
export const pinged: Promise<void> = frames.ping();
frames.ping(undefined, { timeoutMs: 5 });
frames.ping.result().then((result) => result.ok);
export const now: Promise<Date> = frames.now();

// @ts-expect-error TS2345 an input where none is taken
frames.ping({});
// @ts-expect-error TS2345 options in the place of the input
frames.ping({ timeoutMs: 5 });

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
