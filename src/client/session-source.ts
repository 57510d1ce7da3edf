import type { Session } from "../session/session.ts";
import type { SessionHost } from "../session/session-host.ts";
import type { RetriedCalls } from "./retried-calls.ts";

/** Where a client gets the session for its next call: a peer. */
export interface SessionSource {
  readonly host: SessionHost;
  /** The peer's URL or name, for errors. */
  readonly name: string;
  /** Its calls that may be tried more than once. */
  readonly retried: RetriedCalls;
  /** The open session, at once; or a promise of one that is being opened. Rejects with RpcError; throws it when there will never be one. */
  session(): Session | Promise<Session>;
}
