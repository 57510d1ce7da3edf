import type { Metadata } from "../wire/metadata/metadata.ts";
import type { Identity } from "./identity.ts";

/**
 * Decides once for each session and method whether its peer may call it; the answer is kept for the session's life.
 * `identity` is undefined for a peer without `security` that `allowPlain` lets in. `method` is `service/method`.
 * Anything but `true` refuses.
 *
 * @example
 * const allow: Allow = (identity, method) =>
 *   method.startsWith("public.v1/") || (identity?.kind === "certificate" && identity.name === "spiffe://cluster/ingest");
 */
export type Allow = (identity: Identity | undefined, method: string) => boolean;

/**
 * Decides for each call, before its input is decoded. Anything but `true` refuses, and so does an RpcError that it
 * throws, with its code; another error refuses with `internal`.
 *
 * @example
 * const authorize: Authorize = async (call) => verifyToken(call.metadata.get("authorization"), call.method);
 */
export type Authorize = (call: AuthorizedCall) => boolean | Promise<boolean>;

/** A call as `authorize` sees it: its input has not been decoded. */
export interface AuthorizedCall {
  /** `service/method`. */
  readonly method: string;
  /** The caller's identity; undefined for a peer without `security` that `allowPlain` lets in. */
  readonly identity: Identity | undefined;
  /** The metadata of the call. It cannot be changed. */
  readonly metadata: Metadata;
  /** The caller's address, for logs. */
  readonly peer: string;
}
