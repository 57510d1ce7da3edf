import type { RpcError } from "../../base/errors/rpc-error.ts";
import { usualLimits } from "../../base/flow/engine-limits.test-support.ts";
import type { EngineLimits } from "../../base/flow/engine-limits.ts";
import { SharedBudgets } from "../../base/flow/peer-account.ts";
import type { Priority } from "../../base/flow/priority.ts";
import { RequestCredits } from "../../base/flow/request-credits.ts";
import { CallMetrics } from "../../base/observe/call-metrics.ts";
import { newCounters } from "../../base/observe/counters.ts";
import { DeadlineWheel } from "../../base/time/deadline-wheel.ts";
import { FakeClock } from "../../base/time/fake-clock.test-support.ts";
import type { IncomingCall } from "../../call/incoming-call.ts";
import { OutgoingCall, type RequestTerms } from "../../call/outgoing-call.ts";
import type { Flushable, Turns } from "../../fabric/progress.ts";
import { Quarantine } from "../../memory/quarantine.ts";
import { SecurityMeter } from "../../security/security-meter.ts";
import type { ResolvedSecurity } from "../../security/security-options.ts";
import type { ServedMethod } from "../../transfer/control/control-method.ts";
import type { PeerLink } from "../../transfer/control/peer-link.ts";
import { encode } from "../../wire/encode-value.ts";
import { frameHeaderBytes, writeHead } from "../../wire/frame.ts";
import { type Greeting, packGreeting, type ServiceTable } from "../../wire/handshake.ts";
import { alignFrame, messageHeaderBytes, Nonce, writeMessageHeader } from "../../wire/message.ts";
import type { Heartbeat } from "../liveness/heartbeat.ts";
import type { Teardown } from "../liveness/teardown.ts";
import type { WatchedSession } from "../liveness/watched-session.ts";
import type { EngineServices } from "./engine-services.ts";
import type { Session, SessionTerms } from "./session.ts";

/** An engine for its sessions. It keeps every event for the test. */
export class FakeServices implements EngineServices {
  readonly clock = new FakeClock();
  readonly realClock = this.clock;
  readonly clientMiddleware = [];
  security: ResolvedSecurity | undefined = undefined;
  readonly securityMeter = new SecurityMeter();
  readonly wheel = new DeadlineWheel(this.clock);
  readonly gate = { requests: true, calls: true };
  readonly counters = newCounters();
  readonly metrics = new CallMetrics();
  readonly quarantine = new Quarantine();
  readonly limits: EngineLimits;
  readonly credits: RequestCredits;
  readonly goodbyes = new Set<Teardown>();
  readonly budgets: SharedBudgets;
  readonly liveness = { heartbeatMs: 1000, maxStallMs: 30_000 };
  readonly incarnation = 77n;
  readonly served: { services: ServiceTable; methods: ServedMethod[] } = { services: [], methods: [] };
  builtins: ServedMethod[] = [];
  readonly watched: WatchedSession[] = [];
  readonly probed: WatchedSession[] = [];
  /** Whether a probed peer has not answered. */
  awaits = false;
  readonly ended: { readonly session: Session; readonly reason: RpcError | undefined }[] = [];
  heardMs = 0;
  readonly progress = new FakeProgress();

  constructor(limits: Partial<EngineLimits> = {}) {
    this.limits = { ...usualLimits, ...limits };
    this.credits = new RequestCredits(
      this.limits.maxRequestsInAll,
      this.limits.maxRequests,
      this.limits.maxSessions,
    );
    this.budgets = new SharedBudgets(this.limits);
  }

  /** The terms of sessions with these parts. */
  terms(parts: SessionTerms["parts"] = []): SessionTerms {
    return {
      services: this,
      watch: this as unknown as Heartbeat,
      parts,
      onSessionEnded: (session, reason) => void this.ended.push({ session, reason }),
    };
  }

  get nowMs(): number {
    return this.heardMs;
  }

  watch(session: WatchedSession): void {
    session.isWatched = true;
    this.watched.push(session);
  }

  isAsked(session: WatchedSession): boolean {
    return this.awaits && this.probed.includes(session);
  }

  probe(session: WatchedSession): void {
    this.probed.push(session);
  }

  expect(session: WatchedSession): void {
    this.watch(session);
  }

  ponged(): void {}
}

/** Progress with turns under the test's control: flushes stay on the list. */
class FakeProgress implements Turns {
  wake(): void {}

  flushSoon(_queue: Flushable): void {}

  goOn(): void {}
}

/** A method with calls that the test settles. */
export class FakeMethod implements ServedMethod {
  readonly path = "fake/method";
  readonly calls: { readonly call: IncomingCall; readonly input: unknown }[] = [];

  serve(call: IncomingCall, _peer: PeerLink, input: unknown): void {
    this.calls.push({ call, input });
  }
}

/** A call that keeps its values and errors. */
export class FakeCall extends OutgoingCall {
  readonly values: unknown[] = [];
  readonly failures: RpcError[] = [];
  answeredMs = 0;
  revoked = 0;

  readonly terms: RequestTerms;

  constructor(
    how: {
      readonly priority?: Priority;
      readonly fails?: boolean;
      readonly isBuiltin?: boolean;
      readonly isOneWay?: boolean;
    } = {},
  ) {
    super();
    const { priority = "normal", fails: failsWhenFull = false, isBuiltin = false, isOneWay = false } = how;
    this.terms = { priority, failsWhenFull, isOneWay, isBuiltin, key: undefined };
  }

  override get methodPath(): string {
    return "fake/call";
  }

  override onValue(value: unknown, answeredMs: number): void {
    this.answeredMs = answeredMs;
    this.values.push(value);
    this.phase = "settled";
  }

  override onFailure(error: RpcError): void {
    this.failures.push(error);
    this.phase = "settled";
  }

  protected override endEarly(): void {
    this.revoked++;
    this.phase = "settled";
  }

  /** The caller gives up. */
  giveUp(): void {
    this.phase = "settled";
  }

  override onDeadline(): void {}
}

export const peerGreeting: Greeting = {
  versions: [2, 2],
  incarnation: 5n,
  session: 3,
  nonce: 0x3333_0000_3333n,
  address: Uint8Array.of(9),
  agent: "peer/1",
  messageBytes: 4096,
  bodyBytes: 2 ** 29,
  requests: 8,
  immediateBytes: 0,
  heartbeatMs: 1000,
  bodyStallMs: 10_000,
  services: [["s", ["a", "b"]]],
};

export interface FrameSpec {
  readonly kind: number;
  readonly flags?: number;
  readonly method?: number;
  readonly callId?: number;
  readonly word?: number;
  /** Sent as it is when bytes, otherwise encoded. */
  readonly body?: unknown;
}

/** A message with these frames, as a peer would send it. */
export function messageOf(
  session: number,
  nonce: bigint,
  frames: readonly FrameSpec[],
  number = 1,
): Uint8Array<ArrayBuffer> {
  const bodies = frames.map(({ body }) =>
    body === undefined ? new Uint8Array(0) : body instanceof Uint8Array ? body : encode(body),
  );
  const length = bodies.reduce(
    (sum, body) => sum + frameHeaderBytes + alignFrame(body.byteLength),
    messageHeaderBytes,
  );
  const bytes = new Uint8Array(length);
  const view = new DataView(bytes.buffer);
  writeMessageHeader(view, 0, frames.length, length, session, new Nonce(nonce), number);
  let at = messageHeaderBytes;
  frames.forEach(({ kind, flags = 0, method = 0, callId = 0, word = 0 }, i) => {
    const body = bodies[i] as Uint8Array;
    writeHead(view, at, { kind, method, callId, word }, flags, body.byteLength);
    bytes.set(body, at + frameHeaderBytes);
    at += frameHeaderBytes + alignFrame(body.byteLength);
  });
  return bytes;
}

export const packedGreeting = (change: Partial<Greeting> = {}): Record<string, unknown> =>
  packGreeting({ ...peerGreeting, ...change });
