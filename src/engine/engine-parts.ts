import { randomBytes } from "node:crypto";
import { closedError, type RpcError } from "../base/errors/rpc-error.ts";
import type { EngineLimits } from "../base/flow/engine-limits.ts";
import { SharedBudgets } from "../base/flow/peer-account.ts";
import { RequestCredits } from "../base/flow/request-credits.ts";
import { CallLog } from "../base/observe/call-log.ts";
import { CallMetrics } from "../base/observe/call-metrics.ts";
import { type Counters, newCounters } from "../base/observe/counters.ts";
import { Listeners } from "../base/observe/listeners.ts";
import { realClock, systemClock } from "../base/time/clock.ts";
import { DeadlineWheel } from "../base/time/deadline-wheel.ts";
import { realTimers } from "../base/time/real-timers.ts";
import type { Middleware } from "../call/middleware.ts";
import { SessionClients, type SessionPeer } from "../client/session-peer.ts";
import { BorrowConnections } from "../connect/borrow-connections.ts";
import { Connector } from "../connect/connector.ts";
import { Ports } from "../connect/ports.ts";
import { Progress } from "../fabric/progress.ts";
import { Quarantine } from "../memory/quarantine.ts";
import { identifyByName } from "../security/identity.ts";
import { SecurityMeter } from "../security/security-meter.ts";
import { TlsEndpoint } from "../security/tls-endpoint.ts";
import { Admission } from "../server/admission.ts";
import { HandlerErrorLog } from "../server/handler-error-log.ts";
import { HealthBook } from "../server/health-book.ts";
import type { Implementation } from "../server/implement.ts";
import { ReplayCache } from "../server/replay-cache.ts";
import { Dispatchers, ServedServices } from "../server/served-services.ts";
import { Exchange } from "../session/calls/exchange.ts";
import type { DrainGate, EngineServices } from "../session/connection/engine-services.ts";
import type { Session } from "../session/connection/session.ts";
import { SessionTable } from "../session/connection/session-table.ts";
import { Heartbeat } from "../session/liveness/heartbeat.ts";
import { IdlePings } from "../session/liveness/idle-pings.ts";
import type { Teardown } from "../session/liveness/teardown.ts";
import { drainingError, PeerEvicted } from "../session/opening/end-reasons.ts";
import { Borrowing } from "../transfer/handles/borrowing.ts";
import type { EngineEvents } from "./engine-events.ts";
import { ExposedMemory } from "./exposed-memory.ts";
import { hasOpenCalls, isServing } from "./open-call.ts";
import type { ResolvedEngineOptions } from "./options.ts";
import { controlMethods, sessionParts } from "./session-parts.ts";

/** The time that `close` allows for goodbyes and answers to leave. */
const closeGraceMs = 500;

/**
 * The composition root: makes the parts of one engine and connects them. No other file knows all parts. Sessions see the
 * services among them.
 */
export class EngineParts implements EngineServices {
  /** A random number of this engine's incarnation. */
  readonly incarnation = randomBytes(8).readBigUInt64LE();
  readonly clock = systemClock;
  readonly realClock = realClock;
  readonly limits: EngineLimits;
  readonly liveness: EngineServices["liveness"];
  readonly security: EngineServices["security"];
  readonly clientMiddleware: readonly Middleware[];
  readonly goodbyes = new Set<Teardown>();
  readonly credits: RequestCredits;
  readonly budgets: SharedBudgets;
  readonly builtins: EngineServices["builtins"];
  readonly counters: Counters = newCounters();
  readonly securityMeter = new SecurityMeter();
  readonly metrics: CallMetrics;
  readonly wheel = new DeadlineWheel(systemClock);
  readonly gate: DrainGate = { requests: true, calls: true };
  readonly progress = new Progress();
  readonly ports: Ports;
  readonly memory: ExposedMemory;
  readonly quarantine = new Quarantine();
  readonly replays: ReplayCache;
  readonly events = new Listeners<EngineEvents>();
  readonly handlerErrors = new HandlerErrorLog(realClock);
  readonly admission: Admission;
  readonly dispatchers: Dispatchers;
  /** The services for connected peers. */
  readonly served: ServedServices;
  readonly borrowing = new Borrowing();
  readonly health: HealthBook;
  readonly heartbeat: Heartbeat;
  /** Undefined when idle peers are not pinged. */
  readonly #idlePings: IdlePings | undefined;
  readonly sessions: SessionTable;
  readonly connector: Connector;
  readonly borrowConnections: BorrowConnections;
  /** Undefined without credentials. */
  readonly tls: TlsEndpoint | undefined;
  /** The time when the engine was made, on its clock. */
  readonly openedMs = systemClock.now();
  #closing: Promise<void> | undefined;

  constructor(options: ResolvedEngineOptions) {
    const { limits, security, middleware } = options;
    this.limits = limits;
    this.liveness = options;
    this.security = security;
    this.clientMiddleware = middleware.client ?? [];
    this.credits = new RequestCredits(limits.maxRequestsInAll, limits.maxRequests, limits.maxSessions);
    this.budgets = new SharedBudgets(limits);
    const credentials = security?.credentials;
    this.tls = credentials && new TlsEndpoint(credentials, security?.identify ?? identifyByName);
    const assertOpen = () => this.assertOpen();
    const log = options.logger && new CallLog(options.logger);
    this.metrics = new CallMetrics(options.slowCallMs, options.measureLatency, log);
    this.ports = new Ports(this.progress, options);
    this.memory = new ExposedMemory({
      maxPoolBytes: limits.maxPoolBytes,
      incarnation: this.incarnation,
      urls: () => this.ports.urls,
      assertOpen,
    });
    this.replays = new ReplayCache(systemClock, limits, options.security !== undefined);
    this.admission = new Admission(systemClock, this.wheel, options.admission);
    const { onHandlerError = this.handlerErrors.report } = options;
    const { replays, admission, metrics } = this;
    const around = middleware.server ?? [];
    const serverTerms = { onHandlerError, replays, admission, metrics, middleware: around };
    this.dispatchers = new Dispatchers(serverTerms);
    this.served = new ServedServices(this.dispatchers);
    this.health = new HealthBook(
      () => this.served.services.map(([name]) => name),
      () => this.sessions.announce(),
    );
    const { shares } = this.memory;
    this.builtins = controlMethods(this.dispatchers.controls, shares, this.borrowing, this.incarnation);
    this.heartbeat = new Heartbeat(realClock, options.heartbeatMs, () => this.progress.poll());
    this.sessions = new SessionTable({
      services: this,
      watch: this.heartbeat,
      parts: sessionParts,
      onSessionOpened: (session) => {
        this.#idlePings?.onOpened();
        this.events.tell("sessionOpened", { peer: peerOf(session) });
      },
      onSessionEnded: (session, reason) => this.#onSessionEnded(session, reason),
    });
    const { keepaliveMs } = options;
    if (keepaliveMs !== undefined)
      this.#idlePings = new IdlePings(realClock, keepaliveMs, this.heartbeat, this.sessions);
    this.progress.sink = this.sessions;
    const { sessions, ports } = this;
    const serve = (implementations: readonly Implementation[] = []) => {
      const served = new ServedServices(this.dispatchers, false);
      served.add("connect", implementations);
      return served;
    };
    this.connector = new Connector(this, sessions, ports, serve, options.connectTimeoutMs, assertOpen);
    this.borrowConnections = new BorrowConnections(this.exchanges, (url, timeoutMs) =>
      this.connector.connection(url, { timeoutMs }),
    );
  }

  /** Serves more services, and notifies every peer. @throws as `ServedServices.add`. */
  serve(where: string, implementations: readonly Implementation[]): void {
    this.served.add(where, implementations);
    this.sessions.announce();
  }

  /** A listener for `callEnded` is kept by the metrics, not by `events`: calls look only there for listeners. */
  on<E extends keyof EngineEvents>(event: E, listener: (detail: EngineEvents[E]) => void): () => void {
    if (event !== "callEnded") return this.events.on(event, listener);
    const own = new Listeners<EngineEvents>();
    own.on(event, listener);
    return this.metrics.tail((call) => own.tell("callEnded", call));
  }

  /** The calls on each session, for the sessions open at each iteration. */
  get exchanges(): Iterable<Exchange> {
    const { sessions } = this;
    return {
      *[Symbol.iterator]() {
        for (const session of sessions) yield session.part(Exchange);
      },
    };
  }

  /** The peers of the open sessions. */
  get peers(): SessionPeer[] {
    const open = [...this.sessions].filter(({ state, isIntroduced }) => state === "open" && isIntroduced);
    return open.map(peerOf);
  }

  get closed(): boolean {
    return this.#closing !== undefined;
  }

  /** Whether handlers run. */
  get serves(): boolean {
    return isServing(this.exchanges) || this.replays.running > 0;
  }

  /** Whether anything is in flight, including answers that have not left or have not been pulled. */
  get works(): boolean {
    if (this.replays.running > 0 || hasOpenCalls(this.exchanges, this.wheel)) return true;
    return [...this.sessions].some(
      (session) => session.offers.kept.size > 0 || session.outbox.queuedBytes > 0,
    );
  }

  /** Whether every peer knows that the engine drains. */
  get isDrainHeard(): boolean {
    return [...this.sessions].every(
      ({ state, remoteState }) => state !== "open" || remoteState.knowsThatWeDrain,
    );
  }

  /** @throws RpcError `unavailable` when the engine drains or is closed. */
  assertOpen(): void {
    if (this.closed) throw closedError("the engine");
    if (!this.gate.calls) throw drainingError("this engine", "local");
  }

  /** Ends every part, within half a second. Safe to call again. */
  close(): Promise<void> {
    if (this.#closing !== undefined) return this.#closing;
    let settle!: (closed: Promise<void>) => void;
    // Closed before its sessions end: their signals fire then. Listeners find the engine closed, and may close it
    // again.
    this.#closing = new Promise((resolve) => {
      settle = resolve;
    });
    settle(this.#close());
    return this.#closing;
  }

  async #close(): Promise<void> {
    this.sessions.stopAccepting();
    this.memory.shares.clear();
    this.connector.close();
    const reason = closedError("the engine");
    // Before the sessions end, so that callers receive the answer that nothing was executed.
    this.admission.close();
    this.sessions.close(reason);
    this.replays.close(reason);
    // Goodbyes wait for transfers under way.
    const { goodbyes } = this;
    const untilMs = realTimers.now() + closeGraceMs;
    while ((goodbyes.size > 0 || this.ports.all.some((port) => port.busy)) && realTimers.now() < untilMs) {
      this.progress.poll();
      await new Promise(realTimers.setImmediate);
    }
    for (const goodbye of goodbyes) goodbye.sayNow();
    this.#idlePings?.close();
    this.heartbeat.close();
    this.progress.close();
    this.ports.close();
    this.quarantine.releaseAll();
    this.memory.close();
    this.handlerErrors.close();
    this.events.clear();
    this.wheel.close();
  }

  #onSessionEnded(session: Session, reason: RpcError): void {
    this.borrowing.onSessionEnded(session.part(Exchange), reason);
    session.observer?.onEnded(reason);
    // No session existed: it was refused, or never answered.
    if (session.remote === undefined) return;
    if (session.isIntroduced) this.events.tell("sessionEnded", { peer: peerOf(session), reason });
    if (reason instanceof PeerEvicted) this.counters.sessionsEvicted++;
    // A goodbye closes both sides. A session that ends by the fabric, silence or broken bytes is lost.
    if (reason.origin === "fabric") this.counters.sessionsLost++;
    else this.counters.sessionsClosed++;
  }

  readonly toldHealth = () => this.health.told;
}

const peerOf = (session: Session): SessionPeer => session.part(SessionClients).peer;
