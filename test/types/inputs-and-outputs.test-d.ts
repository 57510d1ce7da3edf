import type { HandlerInputOf, HandlerOutputOf, InputOf, OutputOf } from "../../src/contract/infer.ts";
import type { Equal, Expect } from "./expect-type.ts";
import { type FramesHandlers, frames, type Methods } from "./frames.ts";

// A client passes what the schema accepts; a handler receives what the schema gives.
export type ClientInput = Expect<
  Equal<InputOf<Methods["list"]>, { limit?: number | undefined; since: unknown }>
>;
export type HandlerInput = Expect<Equal<HandlerInputOf<Methods["list"]>, { limit: number; since: Date }>>;

// A handler returns what the schema accepts; a client receives what the schema gives.
export type HandlerOutput = Expect<Equal<HandlerOutputOf<Methods["now"]>, unknown>>;
export type ClientOutput = Expect<Equal<OutputOf<Methods["now"]>, Date>>;

// Bytes are a Uint8Array on both sides, and a Buffer will do.
export type BytesIn = Expect<Equal<InputOf<Methods["store"]>, { body: Uint8Array }>>;
export type BytesOut = Expect<Equal<HandlerInputOf<Methods["store"]>, { body: Uint8Array }>>;
frames.store({ body: Buffer.from("abc") });

// A call resolves to the output.
export const stat: Promise<{ bytes: number }> = frames.stat({ id: "a" });
export type Stat = Expect<Equal<Awaited<ReturnType<typeof frames.stat>>, { bytes: number }>>;

// @ts-expect-error TS2322 a field of the wrong type
frames.stat({ id: 7 });
// @ts-expect-error TS2345/TS2741 a field is missing
frames.stat({});
// @ts-expect-error TS2353 a field too many
frames.stat({ id: "a", version: 2 });
// @ts-expect-error TS2554 no input where one is needed
frames.stat();
// @ts-expect-error TS2345 nothing where an input is needed
frames.stat(undefined);
// @ts-expect-error TS2322 text where bytes are needed
frames.store({ body: "abc" });
// @ts-expect-error TS2551 a method the contract does not have
frames.stats({ id: "a" });
// @ts-expect-error TS2540 a client is not to be patched
frames.stat = undefined as unknown as typeof frames.stat;

// A handler's parameters and result are checked from the contract alone.
export const handlers: Pick<FramesHandlers, "stat" | "list"> = {
  stat: ({ id }) => ({ bytes: id.length }),
  async list({ limit, since }) {
    return [since.toISOString()].slice(0, limit);
  },
};
export const wrongResult: Pick<FramesHandlers, "stat" | "list"> = {
  // @ts-expect-error TS2322 an output of the wrong type
  stat: ({ id }) => ({ bytes: id }),
  // @ts-expect-error TS2322 a promise of the wrong type
  async list({ limit }) {
    return limit;
  },
};
