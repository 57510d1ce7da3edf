import type { RpcError } from "../base/errors/rpc-error.ts";
import type { WindowStats } from "../base/flow/in-flight-window.ts";
import type { OutgoingCall } from "../call/outgoing-call.ts";
import { RetriedCalls } from "../call/retried-calls.ts";
import type { AnyService } from "../contract/service.ts";
import type { Identity } from "../security/identity.ts";
import { Exchange } from "../session/calls/exchange.ts";
import type { OutgoingCalls } from "../session/calls/outgoing-calls.ts";
import { type Traffic, trafficOf } from "../session/calls/traffic.ts";
import type { EngineServices } from "../session/connection/engine-services.ts";
import type { Session } from "../session/connection/session.ts";
import type { SessionPart } from "../session/connection/session-part.ts";
import { drainingError, sessionEnded } from "../session/opening/end-reasons.ts";
import type { ControlRequestOptions } from "../transfer/control/peer-link.ts";
import type { ClientOptions } from "./call-options.ts";
import { type Client, createClient } from "./client.ts";
import type { SessionSource } from "./session-source.ts";

/**
 * The state of a peer of one session.
 *
 *   open      calls can be sent
 *   draining  the peer takes no new calls; those in flight continue
 *   ended     the session has ended; every call fails
 */
export type SessionPeerState = "open" | "draining" | "ended";

/** State and traffic of a peer of one session. */
export interface SessionPeerStats extends Traffic {
  readonly state: SessionPeerState;
  /** The window of the calls that this side makes. */
  readonly window: WindowStats;
}

/**
 * The peer of one session, from either side: the caller of a handler (`call.caller`), the peer of an event, or an entry
 * of `engine.peers()`. It is the same object in all three. Calls go over this session only. When the session ends, open
 * calls fail, and later calls fail at once with `unavailable`. No call goes to a successor at the same address.
 */
export class SessionPeer {
  readonly #clients: SessionClients;

  /** @internal Made by its session. */
  constructor(clients: SessionClients) {
    this.#clients = clients;
  }

  /** The URL that this side has connected to; for a peer that has connected, its name and fabric. For logs. */
  get address(): string {
    return this.#clients.name;
  }

  get state(): SessionPeerState {
    return this.#clients.state;
  }

  /** The identity that the peer has proven. Undefined for a peer without a proof. */
  get identity(): Identity | undefined {
    return this.#clients.context.identity;
  }

  /** `engine.incarnation` of the peer. */
  get incarnation(): bigint {
    return this.#clients.context.remote?.incarnation ?? 0n;
  }

  /** The peer's version and fabric, as "cinnabar/0.1 libfabric/1.17 net/1.0". */
  get agent(): string {
    return this.#clients.context.remote?.agent ?? "";
  }

  /** The names of the services that the peer serves to this engine. */
  get services(): string[] {
    return this.#clients.context.methods.names();
  }

  /** Whether only the peer can read what is sent: the session is sealed, or does not leave this host. */
  get isConfidential(): boolean {
    return this.#clients.isConfidential;
  }

  /**
   * Makes a typed client of a service that the peer serves to this engine: by `serve` of its `connect` if it has
   * connected. A client holds no resources and needs no closing. If the peer does not serve the service, calls fail
   * with `unimplemented`.
   *
   * @example
   * const [first] = engine.peers();
   * const result = await first?.client(Files, { timeoutMs: 5_000 }).stat({ path });
   *
   * @throws TypeError for bad options, and for anything but a service.
   */
  client<S extends AnyService>(service: S, options: ClientOptions = {}): Client<S> {
    return createClient(this.#clients, service, options);
  }

  /** State and traffic of the session. Plain data. */
  stats(): SessionPeerStats {
    return this.#clients.stats();
  }
}

/** Shared by the clients of one session's peer. It ends with the session, and finds no other session. */
export class SessionClients implements SessionPart, SessionSource {
  readonly frames = {};
  readonly openWork = 0;
  readonly context: Session;
  readonly waitForReady = false;
  readonly hasOthers = false;
  #exchange: Exchange | undefined;
  #retried: RetriedCalls | undefined;
  #peer: SessionPeer | undefined;
  #endReason: RpcError | undefined;

  constructor(context: Session) {
    this.context = context;
  }

  /** Made on demand. */
  get peer(): SessionPeer {
    this.#peer ??= new SessionPeer(this);
    return this.#peer;
  }

  get engine(): EngineServices {
    return this.context.services;
  }

  get name(): string {
    return this.context.peerName;
  }

  get isConfidential(): boolean {
    return this.#calls.isConfidential;
  }

  /** The session's parts are made after it, so the part is looked up on first use. */
  get #calls(): Exchange {
    this.#exchange ??= this.context.part(Exchange);
    return this.#exchange;
  }

  get retried(): RetriedCalls {
    this.#retried ??= new RetriedCalls();
    return this.#retried;
  }

  get closed(): boolean {
    return this.context.state === "ended";
  }

  get state(): SessionPeerState {
    if (this.closed) return "ended";
    return this.context.remoteState.drains ? "draining" : "open";
  }

  stats(): SessionPeerStats {
    const calls = this.#calls;
    return { state: this.state, ...trafficOf([calls]), window: calls.outgoing.window.stats() };
  }

  session(call: OutgoingCall): OutgoingCalls {
    const { outgoing } = this.#calls;
    if (this.closed) throw sessionEnded(this.name, this.#endReason);
    if (!this.engine.gate.calls && !call.again) throw drainingError("this engine", "local");
    if (!outgoing.takes(call)) throw drainingError(this.name, "local");
    return outgoing;
  }

  ask(method: number, input: unknown, options: ControlRequestOptions): Promise<unknown> {
    return this.#calls.request(method, input, options);
  }

  /** Runs after the session's calls have settled, because some of them would try again. */
  end(reason: RpcError): void {
    this.#endReason = reason;
    this.#retried?.close(sessionEnded(this.name, reason));
  }
}
