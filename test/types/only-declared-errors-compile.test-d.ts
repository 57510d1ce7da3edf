import { z } from "zod";
import type { RpcError } from "../../src/base/errors/rpc-error.ts";
import {
  type ErrorDeclarations,
  type ErrorSchemas,
  error,
  type NoErrors,
} from "../../src/contract/declared-error.ts";
import type { ErrorsOf } from "../../src/contract/infer.ts";
import { isError } from "../../src/contract/is-error.ts";
import { unary } from "../../src/contract/unary.ts";
import type { Equal, Expect } from "./expect-type.ts";
import { Frames, type FramesHandlers, type Methods } from "./frames.ts";

export type Declared = Expect<
  Equal<
    ErrorsOf<Methods["stat"]>,
    { readonly NotFound: { id: string }; readonly Busy: { load: number }; readonly Gone: void }
  >
>;
export type NoneDeclared = Expect<Equal<keyof ErrorsOf<Methods["ping"]>, never>>;

// The errors of a method that declares none are none, not any.
export type NotWidened = Expect<Equal<Methods["ping"]["errors"], ErrorDeclarations<NoErrors>>>;
export type NotAny = Expect<Equal<Equal<Methods["ping"]["errors"], ErrorDeclarations<ErrorSchemas>>, false>>;

// A handler fails with declared reasons and their data.
export const handlers: Pick<FramesHandlers, "stat" | "ping"> = {
  async stat({ id }, call) {
    if (id === "busy") return call.fail("Busy", { load: 0.9 });
    if (id === "gone") return call.fail("Gone");
    const found = new Map([["a", 7]]).get(id) ?? call.fail("NotFound", { id });
    const narrowed: number = found;
    return { bytes: narrowed };
  },
  ping(_, call) {
    call.signal.throwIfAborted();
  },
};
export const wrongHandlers: Pick<FramesHandlers, "stat" | "ping"> = {
  stat({ id }, call) {
    // @ts-expect-error TS2345 a reason the method does not declare
    call.fail("Missing", { id });
    // @ts-expect-error TS2353 another reason's data
    call.fail("NotFound", { load: 0.9 });
    // @ts-expect-error TS2322 data of the wrong type
    call.fail("NotFound", { id: 7 });
    // @ts-expect-error TS2554 no data where some is declared
    call.fail("NotFound");
    // @ts-expect-error TS2345 data where none is declared
    call.fail("Gone", { id });
    return { bytes: 0 };
  },
  ping(_, call) {
    // @ts-expect-error TS2345 a method without declared errors declares no reason
    call.fail("NotFound", { id: "a" });
    // @ts-expect-error TS2551 the context has what the server gives, nothing else
    call.signals;
  },
};

// isError narrows to the reason and the data of that method.
export function dataOf(error: unknown): string {
  if (isError(error, Frames, "stat", "NotFound")) {
    const rpcError: RpcError = error;
    const reason: "NotFound" = error.reason;
    return error.data.id + rpcError.code + reason;
  }
  if (isError(error, Frames, "move", "NotFound")) return error.data.path;
  // @ts-expect-error TS2345 a reason the method does not declare
  if (isError(error, Frames, "stat", "Missing")) return "";
  // @ts-expect-error TS2345 a method without declared errors
  if (isError(error, Frames, "ping", "NotFound")) return "";
  // @ts-expect-error TS2345 a method the service does not have
  if (isError(error, Frames, "stats", "NotFound")) return "";
  // @ts-expect-error TS2339 another method's data
  if (isError(error, Frames, "stat", "NotFound")) return error.data.path;
  return "";
}

// @ts-expect-error TS2322 a declared error is a schema
unary({ errors: { Gone: true } });
unary({ errors: { Gone: z.string() } });

// An error with a code and a text has the type of its data.
export const coded = unary({
  errors: {
    Late: error({ data: z.object({ byMs: z.number() }), code: "aborted" }),
    Lost: error({ message: "lost" }),
  },
});
export type Coded = Expect<
  Equal<ErrorsOf<typeof coded>, { readonly Late: { byMs: number }; readonly Lost: void }>
>;
// @ts-expect-error TS2820 a code that does not exist
error({ code: "not found" });
