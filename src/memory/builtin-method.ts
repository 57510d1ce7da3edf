import type { IncomingCall } from "../call/incoming-call.ts";
import type { RpcCode } from "../errors/code.ts";
import { RpcError } from "../errors/rpc-error.ts";
import type { Session } from "../session/session.ts";
import type { ServedMethod } from "../session/session-host.ts";

/** What serves one built-in method. It settles the call, now or later; what it throws settles it, too. */
export type BuiltinServer<I> = (input: I, call: IncomingCall, session: Session) => void | Promise<void>;

/** The parts of a built-in's input, or undefined when they do not have the form. */
export type InputReader<I> = (parts: readonly unknown[]) => I | undefined;

/**
 * A built-in method: its input is an array of fixed form, read by hand. What has another form is the asker's fault and answered with
 * `invalid_argument`.
 */
export function builtinMethod<I>(name: string, read: InputReader<I>, serve: BuiltinServer<I>): ServedMethod {
  return {
    serve(call, session, value) {
      const input = Array.isArray(value) ? read(value) : undefined;
      if (input === undefined)
        return fail(call, "invalid_argument", `${name}: the input does not have the form it should`);
      const thrown = (error: unknown) => failWith(call, name, error);
      try {
        serve(input, call, session)?.catch(thrown);
      } catch (error) {
        thrown(error);
      }
    },
  };
}

/** Ends a built-in call with an error for the asker. */
export function fail(call: IncomingCall, code: RpcCode, message: string): void {
  call.settle({ error: new RpcError({ code, message, origin: "remote" }) });
}

function failWith(call: IncomingCall, name: string, error: unknown): void {
  if (error instanceof RpcError) call.settle({ error });
  else fail(call, "internal", `${name} failed`);
}

const maxUint64 = 0xffff_ffff_ffff_ffffn;

/** A key, a token's half, a word: 64 bits unsigned. */
export function isUint64(value: unknown): value is bigint {
  return typeof value === "bigint" && value >= 0n && value <= maxUint64;
}

/** An offset, a length, a count. */
export function isCount(value: unknown): value is number {
  return typeof value === "number" && Number.isSafeInteger(value) && value >= 0;
}

export function isUint32(value: unknown): value is number {
  return isCount(value) && value <= 0xffff_ffff;
}

/** Numbers beyond 2^32 - 1 travel as floats, others as integers; both arrive as numbers. What a peer sends as a big integer may be one, too. */
export function asCount(value: unknown): number | undefined {
  const number = typeof value === "bigint" ? Number(value) : value;
  return isCount(number) ? number : undefined;
}
