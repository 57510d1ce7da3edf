import type { Quarantine } from "../bulk/quarantine.ts";
import type { Clock } from "../call/clock.ts";
import type { DeadlineWheel } from "../call/deadline-wheel.ts";
import type { IncomingCall } from "../call/incoming-call.ts";
import type { RpcError } from "../errors/rpc-error.ts";
import type { Port } from "../fabric/port.ts";
import type { CallMetrics, MethodMetrics } from "../observe/call-metrics.ts";
import type { Counters } from "../observe/counters.ts";
import type { LaneAddress, ServiceTable } from "../wire/handshake.ts";
import type { ByteBudget } from "./byte-budget.ts";
import type { Intake } from "./intake.ts";
import type { SessionLimits } from "./limits.ts";
import type { Parting } from "./parting.ts";
import type { RequestCredits } from "./request-credits.ts";
import type { Session } from "./session.ts";

/** A method as the session needs it: somebody takes the decoded input and settles the call, sooner or later. */
export interface ServedMethod {
  /** `service/method`, for those who are told; absent from built-in methods. */
  readonly path?: string;
  /** What is counted of it. */
  readonly metrics?: MethodMetrics;
  serve(call: IncomingCall, session: Session, input: unknown): void;
}

/** What all sessions of an engine share. */
export interface SessionHost {
  readonly clock: Clock;
  readonly wheel: DeadlineWheel;
  readonly intake: Intake;
  readonly counters: Counters;
  readonly metrics: CallMetrics;
  readonly limits: SessionLimits;
  readonly quarantine: Quarantine;
  /** Goodbyes that wait for transfers under way. */
  readonly partings: Set<Parting>;
  /** Requests of peers that are open here. */
  readonly credits: RequestCredits;
  /** Bodies on their way in. */
  readonly pullBudget: ByteBudget;
  /** Bodies kept for peers to pull. */
  readonly offerBudget: ByteBudget;
  /** How long this engine waits for silent peers, and is vouched for while it is absent itself. */
  readonly liveness: { readonly heartbeatMs: number; readonly maxStallMs: number };
  /** Random 64 bit of this engine's life. */
  readonly incarnation: bigint;
  readonly services: ServiceTable;
  /** Served methods by the number that `services` gives them. */
  readonly methods: readonly ServedMethod[];
  /** Built-in methods by their number from `firstBuiltin` on. */
  readonly builtins: readonly (ServedMethod | undefined)[];
  /** The lanes that this engine speaks for, as they are told to whoever says hello at the port. */
  lanesFor(port: Port): readonly LaneAddress[];
  /** Makes progress soon. */
  kick(): void;
  /** The session's outbox wants a flush at the end of this turn. */
  markDirty(session: Session): void;
  /** The session has open work from now on: watch that its peer lives. */
  watch(session: Session): void;
  /** Asks an idle peer whether it lives, and ends the session if it does not say so within the heartbeat's bound. */
  probe(session: Session): void;
  /** The answer to a ping has come. */
  ponged(session: Session): void;
  /** When a message arrived, on the heartbeat's clock. */
  heardNow(): number;
  /** The earliest that the message being taken apart can have arrived, on `clock`: it may have lain there while this thread was busy. */
  arrivedMs(): number;
  onSessionEnded(session: Session, reason: RpcError): void;
}
