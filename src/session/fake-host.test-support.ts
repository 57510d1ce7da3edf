import { Quarantine } from "../bulk/quarantine.ts";
import { DeadlineWheel } from "../call/deadline-wheel.ts";
import { FakeClock } from "../call/fake-clock.test-support.ts";
import type { IncomingCall } from "../call/incoming-call.ts";
import { OutgoingCall } from "../call/outgoing-call.ts";
import type { RpcError } from "../errors/rpc-error.ts";
import type { Priority } from "../flow/priority.ts";
import { CallMetrics } from "../observe/call-metrics.ts";
import { newCounters } from "../observe/counters.ts";
import { encode } from "../wire/codec.ts";
import { frameHeaderBytes, writeFrameHeader } from "../wire/frame.ts";
import { type Greeting, packGreeting, type ServiceTable } from "../wire/handshake.ts";
import { alignFrame, messageHeaderBytes, writeMessageHeader } from "../wire/message.ts";
import { ByteBudget } from "./byte-budget.ts";
import { defaultLimits, type SessionLimits } from "./limits.ts";
import type { Parting } from "./parting.ts";
import { RequestCredits } from "./request-credits.ts";
import type { Session } from "./session.ts";
import type { ServedMethod, SessionHost } from "./session-host.ts";

/** What an engine is to its sessions, with every event kept for the test to look at. */
export class FakeHost implements SessionHost {
  readonly clock = new FakeClock();
  readonly wheel = new DeadlineWheel(this.clock);
  readonly intake = { requests: true, calls: true };
  readonly counters = newCounters();
  readonly metrics = new CallMetrics();
  readonly quarantine = new Quarantine();
  readonly limits: SessionLimits;
  readonly credits: RequestCredits;
  readonly partings = new Set<Parting>();
  readonly pullBudget: ByteBudget;
  readonly offerBudget: ByteBudget;
  readonly liveness = { heartbeatMs: 1000, maxStallMs: 30_000 };
  readonly incarnation = 77n;
  services: ServiceTable = [];
  methods: ServedMethod[] = [];
  builtins: ServedMethod[] = [];
  readonly watched: Session[] = [];
  readonly probed: Session[] = [];
  readonly ended: { readonly session: Session; readonly reason: RpcError | undefined }[] = [];
  heardMs = 0;
  /** How long messages lay there before they are handed out. */
  layMs = 0;

  constructor(limits: Partial<SessionLimits> = {}) {
    this.limits = { ...defaultLimits, ...limits };
    this.credits = new RequestCredits(this.limits.maxRequestsInAll, this.limits.maxRequests);
    this.pullBudget = new ByteBudget(this.limits.maxPullBytes);
    this.offerBudget = new ByteBudget(this.limits.maxOfferBytes);
  }

  lanesFor(): [] {
    return [];
  }

  kick(): void {}

  markDirty(): void {}

  watch(session: Session): void {
    this.watched.push(session);
  }

  probe(session: Session): void {
    this.probed.push(session);
  }

  ponged(): void {}

  heardNow(): number {
    return this.heardMs;
  }

  arrivedMs(): number {
    return this.clock.now() - this.layMs;
  }

  onSessionEnded(session: Session, reason: RpcError | undefined): void {
    this.ended.push({ session, reason });
  }
}

/** A method whose calls the test settles. */
export class FakeMethod implements ServedMethod {
  readonly path = "fake/method";
  readonly calls: { readonly call: IncomingCall; readonly input: unknown }[] = [];

  serve(call: IncomingCall, _session: Session, input: unknown): void {
    this.calls.push({ call, input });
  }
}

/** A call that keeps what it is told. */
export class FakeCall extends OutgoingCall {
  readonly values: unknown[] = [];
  readonly failures: RpcError[] = [];
  revoked = 0;

  constructor(how: { readonly priority?: Priority; readonly fails?: boolean } = {}) {
    super();
    this.priority = how.priority ?? "normal";
    this.failsWhenFull = how.fails ?? false;
  }

  override onValue(value: unknown): void {
    this.values.push(value);
    this.phase = "settled";
  }

  override onFailure(error: RpcError): void {
    this.failures.push(error);
    this.phase = "settled";
  }

  override onRevoked(): void {
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
  versions: [1, 1],
  incarnation: 5n,
  session: 3,
  nonce: 0x3333,
  address: Uint8Array.of(9),
  agent: "peer/1",
  messageBytes: 4096,
  bodyBytes: 2 ** 29,
  requests: 8,
  immediateBytes: 0,
  heartbeatMs: 1000,
  lanes: [],
  services: [["s", ["a", "b"]]],
};

export interface FrameSpec {
  readonly kind: number;
  readonly flags?: number;
  readonly method?: number;
  readonly callId?: number;
  readonly word?: number;
  /** As it is when bytes, else encoded. */
  readonly body?: unknown;
}

/** A message of these frames, as a peer would send it. */
export function messageOf(
  session: number,
  nonce: number,
  frames: readonly FrameSpec[],
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
  writeMessageHeader(view, 0, frames.length, length, session, nonce);
  let at = messageHeaderBytes;
  frames.forEach(({ kind, flags = 0, method = 0, callId = 0, word = 0 }, i) => {
    const body = bodies[i] as Uint8Array;
    writeFrameHeader(view, at, kind, flags, method, callId, body.byteLength, word);
    bytes.set(body, at + frameHeaderBytes);
    at += frameHeaderBytes + alignFrame(body.byteLength);
  });
  return bytes;
}

export const packedGreeting = (change: Partial<Greeting> = {}): Record<string, unknown> =>
  packGreeting({ ...peerGreeting, ...change });
