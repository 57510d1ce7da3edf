import type { OutgoingCall } from "../call/outgoing-call.ts";
import type { RetriedCalls } from "../call/retried-calls.ts";
import type { OutgoingCalls } from "../session/calls/outgoing-calls.ts";
import type { EngineServices } from "../session/connection/engine-services.ts";
import type { ControlRequestOptions } from "../transfer/control/peer-link.ts";

/** The source of the session for a client's next call: a peer. */
export interface SessionSource {
  readonly engine: EngineServices;
  /** The peer's URL or name, for errors. */
  readonly name: string;
  /** Whether each session of it is sealed, or does not leave this host. */
  readonly isConfidential: boolean;
  /** The calls that may make several attempts. */
  readonly retried: RetriedCalls;
  /** The source is closed: no session will open again. */
  readonly closed: boolean;
  /** Calls wait while there is no session. Calls that had not left when a session was lost ask for another. */
  readonly waitForReady: boolean;
  /** Several peers may take a call: a call that the first peer has certainly not executed goes to another. */
  readonly hasOthers: boolean;
  /**
   * The open session, at once, or a promise of an opening one. Throws or rejects with RpcError. The end of `call` ends
   * the wait.
   */
  session(call: OutgoingCall, input: unknown): OutgoingCalls | Promise<OutgoingCalls>;
  /** Sends a control request. Undefined when calls may use any session. */
  ask?(method: number, input: unknown, options: ControlRequestOptions): Promise<unknown>;
}
