import { z } from "zod";
import type { ClientOf, HandlersOf } from "../../src/contract/infer.ts";
import { service } from "../../src/contract/service.ts";
import { unary } from "../../src/contract/unary.ts";
import { bulk, bytes } from "../../src/contract/zod-schemas.ts";

/** The contract that the type tests use. */
export const Frames = service("frames.v1", {
  ping: unary(),
  stat: unary({
    input: z.object({ id: z.string() }),
    output: z.object({ bytes: z.int() }),
    errors: { NotFound: z.object({ id: z.string() }), Busy: z.object({ load: z.number() }), Gone: z.void() },
    idempotent: true,
  }),
  list: unary({
    input: z.object({ limit: z.int().default(10), since: z.coerce.date() }),
    output: z.array(z.string()),
  }),
  store: unary({ input: z.object({ body: bytes({ maxBytes: 4096 }) }) }),
  now: unary({ output: z.coerce.date() }),
  load: unary({ input: z.object({ into: bulk("write") }), output: z.object({ bytes: z.int() }) }),
  save: unary({ input: z.object({ from: bulk("read") }) }),
  swap: unary({ input: z.object({ both: bulk("read_write") }) }),
  move: unary({ errors: { NotFound: z.object({ path: z.string() }) } }),
});

export type Methods = (typeof Frames)["methods"];

/** What stands in for the client layer's call options. */
export interface Options {
  readonly timeoutMs?: number;
  readonly signal?: AbortSignal;
}

/** The same, by the kind of method. */
export interface ByKind {
  readonly call: Options;
  readonly stream: Options;
  readonly oneWay: Options;
}

/** What stands in for the server layer's call context. */
export interface Context {
  readonly signal: AbortSignal;
}

export type FramesClient = ClientOf<typeof Frames, ByKind>;
export type FramesHandlers = HandlersOf<typeof Frames, Context>;

export declare const frames: FramesClient;
