import type { RpcCode } from "../../base/errors/code.ts";
import { RpcError } from "../../base/errors/rpc-error.ts";
import type { MethodMetrics } from "../../base/observe/call-metrics.ts";
import type { IncomingCall } from "../../call/incoming-call.ts";
import { firstBuiltin } from "../../wire/builtin.ts";
import type { PeerLink } from "./peer-link.ts";

/** A method as the session needs it: its server takes the decoded input and settles the call, now or later. */
export interface ServedMethod {
  /** `service/method`, for reports; absent from control methods of engines. */
  readonly path?: string;
  /** The metrics of the method. */
  readonly metrics?: MethodMetrics;
  /** The directions in which its calls have items; absent where they have no items. */
  readonly items?: ItemDirections | undefined;
  /** Its callers wait for no answer. Default: they do. */
  readonly isOneWay?: boolean;
  serve(call: IncomingCall, peer: PeerLink, input: unknown): void;
  /** A check before the call has thrown an error that is not an RpcError, or an error lost its data. */
  onThrown?(call: IncomingCall, error: unknown): void;
  /** A call of it has ended with an error. */
  onFailed?(call: IncomingCall, error: RpcError): void;
}

/** The method with this number, a control method or one of the service table. */
export function methodAt({ served, services }: MethodTables, number: number): ServedMethod | undefined {
  return number >= firstBuiltin ? services.builtins[number - firstBuiltin] : served.methods[number];
}

/** The part of a session that names the methods of its side. */
export interface MethodTables {
  readonly served: { readonly methods: readonly ServedMethod[] };
  readonly services: { readonly builtins: readonly (ServedMethod | undefined)[] };
}

/** The sides that send items in the calls of a method. */
export interface ItemDirections {
  /** The caller does. */
  readonly inputs: boolean;
  /** The callee does. */
  readonly outputs: boolean;
}

/** Serves one built-in method. It settles the call, now or later; an error that it throws settles the call, too. */
export type BuiltinServer<I> = (input: I, call: IncomingCall, peer: PeerLink) => void | Promise<void>;

/** The parts of a built-in's input, or undefined when they do not have the form. */
export type InputReader<I> = (parts: readonly unknown[]) => I | undefined;

/**
 * A control method: its input is an array of fixed form, read by hand. Input of another form is the requester's fault,
 * and is answered with `invalid_argument`.
 */
export function builtinMethod<I>(name: string, read: InputReader<I>, serve: BuiltinServer<I>): ServedMethod {
  return {
    serve(call, peer, value) {
      const input = Array.isArray(value) ? read(value) : undefined;
      if (input === undefined)
        return fail(call, "invalid_argument", `${name}: the input does not have the form it should`);
      const thrown = (error: unknown) => failWith(call, name, error);
      try {
        serve(input, call, peer)?.catch(thrown);
      } catch (error) {
        thrown(error);
      }
    },
  };
}

/** Ends a control request with an error for the requester. */
export function fail(call: IncomingCall, code: RpcCode, message: string): void {
  call.settle({ error: new RpcError({ code, message, origin: "remote" }) });
}

/** The same with an error that the method `name` has thrown. */
export function failWith(call: IncomingCall, name: string, error: unknown): void {
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

/**
 * Numbers beyond 2^32 - 1 travel as floats, others as integers; both arrive as numbers. A big integer from a peer may
 * be a count, too.
 */
export function asCount(value: unknown): number | undefined {
  const number = typeof value === "bigint" ? Number(value) : value;
  return isCount(number) ? number : undefined;
}
