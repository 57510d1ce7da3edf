import type { OutgoingCall } from "../call/outgoing-call.ts";
import type { RpcCode } from "../errors/code.ts";
import type { Session } from "../session/session.ts";
import type { SessionHost } from "../session/session-host.ts";

/** Where a client gets the session for its next call: a peer. */
export interface SessionSource {
  readonly host: SessionHost;
  /** The peer's URL or name, for errors. */
  readonly name: string;
  /** The open session, at once; or a promise of one that is being opened. Throws or rejects with RpcError. `call` is who wants it: its end ends the wait. */
  session(call?: OutgoingCall, input?: unknown): Session | Promise<Session>;
  /** A call that had left over the session has ended. Absent where nobody wants to know. */
  onSettled?(session: Session, code: RpcCode | "ok"): void;
}
