import type { RpcCode } from "../base/errors/code.ts";
import type { OutgoingCall } from "../call/outgoing-call.ts";
import type { RetriedCalls } from "../call/retried-calls.ts";
import type { SessionContext } from "../session/connection/context.ts";
import type { EngineServices } from "../session/connection/engine-services.ts";
import type { MethodNumbers } from "../session/connection/method-numbers.ts";
import type { SessionState } from "../session/liveness/watched-session.ts";
import type { ControlRequestOptions } from "../transfer/control/peer-link.ts";

/** A session for a client's calls. */
export interface CallSession {
  readonly peerName: string;
  readonly state: SessionState;
  /** The peer takes no more calls: it drains, or the session has ended. */
  readonly takesNoCalls: boolean;
  /** The incarnation of the peer's engine; undefined while the session opens. */
  readonly incarnation: bigint | undefined;
  /** The numbers of the peer's methods. */
  readonly methods: MethodNumbers;
  /** Counts the ends of calls that had left. Undefined without a counter. */
  readonly listener: { onSettled(code: RpcCode | "ok"): void } | undefined;
  /** The session itself, for its other parts. */
  readonly context: SessionContext;
  /**
   * Sends a request, or lets it wait for its turn. `endMs`, on the engine's clock, is the end of the caller's wait.
   * Throws RpcError when the request can neither leave nor wait.
   */
  request(call: OutgoingCall, method: number, endMs: number, input: unknown, nowMs?: number): void;
  /** The caller gave up on a call that has been settled. */
  cancel(call: OutgoingCall): void;
}

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
  session(call: OutgoingCall, input: unknown): CallSession | Promise<CallSession>;
  /** Sends a control request. Undefined when calls may use any session. */
  ask?(method: number, input: unknown, options: ControlRequestOptions): Promise<unknown>;
}
