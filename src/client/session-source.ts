import type { OutgoingCall } from "../call/outgoing-call.ts";
import type { RpcCode } from "../errors/code.ts";
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
  /** For good: there will never be a session again. */
  readonly closed: boolean;
  /** Calls wait while there is no session, and those that have not left when one is lost ask for another. */
  readonly patient: boolean;
  /** The open session, at once; or a promise of one that is being opened. Throws or rejects with RpcError. `call` is who wants it: its end ends the wait. */
  session(call?: OutgoingCall, input?: unknown): Session | Promise<Session>;
  /** A request that had left over the session has ended. Absent where nobody wants to know. */
  onSettled?(session: Session, code: RpcCode | "ok"): void;
}
