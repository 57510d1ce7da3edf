/**
 * Why a call failed: gRPC's sixteen codes. Match on the code, never on the message.
 *
 * - `cancelled`: the caller gave up.
 * - `unknown`: a failure without a better code.
 * - `invalid_argument`: the input violates the contract or a limit; a retry cannot help.
 * - `deadline_exceeded`: the deadline passed; the handler may have run.
 * - `not_found`: the thing, the method or the service does not exist.
 * - `already_exists`: the thing to create exists; the address to listen on is in use.
 * - `permission_denied`: the caller is known and has no right to do this; a region does not grant this access.
 * - `resource_exhausted`: a queue, a quota, memory or a limit is full; `retryAfterMs` may say how long to wait.
 * - `failed_precondition`: the system's state does not allow it; a retry cannot help until the state changes.
 * - `aborted`: a conflict with other work; retry at a higher level.
 * - `out_of_range`: an offset or a length lies outside a region or a collection.
 * - `unimplemented`: the peer, the provider or this version cannot do it.
 * - `internal`: a bug in a handler, in Cinnabar or below it.
 * - `unavailable`: the peer cannot be reached now, or is closing; a retry may help.
 * - `data_loss`: bytes are permanently lost or corrupted.
 * - `unauthenticated`: the caller has not proved its identity.
 */
export type RpcCode =
  | "cancelled"
  | "unknown"
  | "invalid_argument"
  | "deadline_exceeded"
  | "not_found"
  | "already_exists"
  | "permission_denied"
  | "resource_exhausted"
  | "failed_precondition"
  | "aborted"
  | "out_of_range"
  | "unimplemented"
  | "internal"
  | "unavailable"
  | "data_loss"
  | "unauthenticated";

/** The number on the wire of a call that succeeded. */
export const okNumber = 0;

/** The number of each code on the wire, the same as gRPC's. They never change: peers of other versions read them. */
export const codeNumbers: Readonly<Record<RpcCode, number>> = Object.freeze({
  cancelled: 1,
  unknown: 2,
  invalid_argument: 3,
  deadline_exceeded: 4,
  not_found: 5,
  already_exists: 6,
  permission_denied: 7,
  resource_exhausted: 8,
  failed_precondition: 9,
  aborted: 10,
  out_of_range: 11,
  unimplemented: 12,
  internal: 13,
  unavailable: 14,
  data_loss: 15,
  unauthenticated: 16,
});

const codesByNumber: readonly (RpcCode | undefined)[] = (() => {
  const codes: (RpcCode | undefined)[] = [undefined];
  for (const [code, number] of Object.entries(codeNumbers)) codes[number] = code as RpcCode;
  return codes;
})();

/** The wire number of a code, 1 to 16. */
export function codeToNumber(code: RpcCode): number {
  return codeNumbers[code];
}

/**
 * The code of a wire number; `undefined` for 0 (success) and for every number that is no code. The number may come from
 * a hostile peer: any value is fine.
 */
export function codeFromNumber(number: number): RpcCode | undefined {
  return codesByNumber[number];
}

/** Whether a value is one of the sixteen codes. */
export function isRpcCode(value: unknown): value is RpcCode {
  return typeof value === "string" && Object.hasOwn(codeNumbers, value);
}
