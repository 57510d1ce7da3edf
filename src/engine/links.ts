import type { Resolver } from "../balance/resolver.ts";
import { systemClock } from "../call/clock.ts";
import { assertOptions, assertTimeoutMs } from "../contract/check.ts";
import { closedError } from "../errors/closed.ts";
import { RpcError } from "../errors/rpc-error.ts";
import type { WindowLimits } from "../session/in-flight-window.ts";
import type { Session } from "../session/session.ts";
import type { SessionHost } from "../session/session-host.ts";
import { ConnectSilence, type SessionTable } from "../session/session-table.ts";
import { GroupMember } from "./group-member.ts";
import { type GroupOptions, resolveGroupOptions, resolverOf } from "./group-options.ts";
import { type LaneOptions, resolveLaneOptions } from "./lane-options.ts";
import { Pauses } from "./pauses.ts";
import { Peer, type PeerPlace } from "./peer.ts";
import { PeerGroup } from "./peer-group.ts";
import type { LaneOpener } from "./peer-lanes.ts";
import type { Ports } from "./ports.ts";
import {
  pauseMs,
  type ReconnectOptions,
  type ResolvedReconnectOptions,
  resolveReconnectOptions,
} from "./reconnect.ts";
import { resolveWindowOptions, type WindowOptions } from "./window-options.ts";
import { within } from "./within.ts";

/** What `engine.connect` takes. */
export interface ConnectOptions {
  /** How long to wait for the peer's welcome, in milliseconds. Default: the engine's `connectTimeoutMs`. */
  readonly timeoutMs?: number;
  /** What becomes of calls while the peer is lost. Default: the first of them tries once to connect. */
  readonly reconnect?: ReconnectOptions;
  /** How many calls to the peer may be in flight, and how many wait; to each of its lanes, where it has several. */
  readonly window?: WindowOptions;
  /** How calls go to the peer's lanes, where it has several. */
  readonly lanes?: LaneOptions;
}

/** What holds for every session of a peer. */
interface PeerTerms {
  readonly timeoutMs: number;
  readonly reconnect: ResolvedReconnectOptions;
  readonly window: WindowLimits;
}

/**
 * How long the first hello is waited for before another is sent; each further one twice as long. A hello can be lost without a trace: libfabric's
 * tcp drops what is posted to an address before it has seen the end of the former connection there, as when a server has just been restarted.
 */
const firstAttemptMs = 1000;

/** Bounds of the pause after a hello that went into a connection which had broken before. The next one makes another, if the provider knows by then. */
const lostHelloPause = { minDelayMs: 5, maxDelayMs: 500 };

/** EIO and ECANCELED are what verbs says of a message whose connection broke. Until the welcome has come, nothing was sent but the hello. */
function isLostHello(error: unknown): boolean {
  const fabric = error instanceof RpcError ? error.fabric : undefined;
  return fabric?.op === "fi_send" && (fabric.code === 5 || fabric.code === 125);
}

/** The peers and groups of peers that an engine has connected to, and how their sessions are opened. */
export class Links {
  readonly #host: SessionHost;
  readonly #sessions: SessionTable;
  readonly #ports: Ports;
  readonly #timeoutMs: number;
  readonly #assertOpen: () => void;
  readonly #peers = new Set<Peer>();
  readonly #groups = new Set<PeerGroup>();
  readonly #pauses = new Pauses(systemClock, false);

  /** `timeoutMs` is the default for the peer's welcome; `assertOpen` throws when the engine connects no more. */
  constructor(
    host: SessionHost,
    sessions: SessionTable,
    ports: Ports,
    timeoutMs: number,
    assertOpen: () => void,
  ) {
    this.#host = host;
    this.#sessions = sessions;
    this.#ports = ports;
    this.#timeoutMs = timeoutMs;
    this.#assertOpen = assertOpen;
  }

  async peer(url: string, options: ConnectOptions): Promise<Peer> {
    assertOptions("connect", options, ["timeoutMs", "reconnect", "window", "lanes"]);
    const { timeoutMs = this.#timeoutMs } = options;
    assertTimeoutMs("connect: timeoutMs", timeoutMs);
    const reconnect = resolveReconnectOptions(options.reconnect);
    const terms = { timeoutMs, reconnect, window: resolveWindowOptions(options.window) };
    const lanes = this.#laneOpener(terms, resolveLaneOptions(options.lanes), true);
    const peer = this.#newPeer(url, terms, { lanes });
    const untilMs = systemClock.now() + timeoutMs;
    try {
      await peer.session();
      await peer.lanesReached(Math.max(1, untilMs - systemClock.now()));
    } catch (error) {
      peer.close();
      throw error;
    }
    return peer;
  }

  async group(where: readonly string[] | Resolver, options: GroupOptions): Promise<PeerGroup> {
    const resolved = resolveGroupOptions(options, this.#timeoutMs);
    const resolver = resolverOf(where);
    this.#assertOpen();
    const group = new PeerGroup(
      this.#host,
      resolver,
      resolved,
      (url) => {
        const terms = { ...resolved, reconnect: resolveReconnectOptions() };
        return this.#newPeer(url, terms, { lanes: this.#laneOpener(terms, resolved.lanes, false) });
      },
      (self) => this.#groups.delete(self),
    );
    this.#groups.add(group);
    try {
      // The resolver takes its time, too, and may never say anything.
      await within(resolved.timeoutMs, `${group.name}: nobody was reached`, group.connected());
    } catch (error) {
      group.close();
      throw error;
    }
    return group;
  }

  close(): void {
    for (const group of this.#groups) group.close();
    for (const peer of this.#peers) peer.close();
    this.#pauses.endAll();
  }

  #newPeer(url: string, { timeoutMs, reconnect, window }: PeerTerms, place: PeerPlace): Peer {
    const peer = new Peer(
      url,
      this.#host,
      (self) => this.#openSession(self, timeoutMs, window),
      (self) => this.#peers.delete(self),
      reconnect,
      window,
      place,
    );
    this.#peers.add(peer);
    return peer;
  }

  /** How the lanes are reached of a peer of these terms. `keeps`: the peer itself is tried again when it is lost, once it is known to have lanes. */
  #laneOpener(terms: PeerTerms, lanes: LaneOptions, keeps: boolean): LaneOpener {
    const { timeoutMs, reconnect, window } = terms;
    const options = { ...resolveGroupOptions({ ...lanes }, timeoutMs), reconnect, window, pins: true };
    const ignore = () => {};
    return {
      group: (front, resolver) => {
        const { host } = front;
        const newLane = (url: string) => this.#newPeer(url, terms, { front });
        return new PeerGroup(host, resolver, options, newLane, ignore, () => front.onLanesChanged());
      },
      ...(keeps ? { keep: (front: Peer) => new GroupMember(front, options, this.#host.clock, ignore) } : {}),
    };
  }

  /** `timeoutMs` is for all of it: looking the name up, opening a port, and the peer's welcome. */
  async #openSession(peer: Peer, timeoutMs: number, window: WindowLimits): Promise<Session> {
    this.#assertOpen();
    const untilMs = systemClock.now() + timeoutMs;
    const target = await within(
      timeoutMs,
      `${peer.url} could not be looked up`,
      this.#ports.locate(peer.url),
    );
    const port = await this.#ports.towards(target);
    let lostHellos = 0;
    for (let attemptMs = firstAttemptMs; ; ) {
      this.#assertOpen();
      // Nobody waits, and a peer may name ever new lanes: none is to cost more than the hello that is out.
      if (peer.closed) throw closedError(peer.url);
      const { address, replyTo } = port.route(target);
      const leftMs = Math.max(1, untilMs - systemClock.now());
      const last = leftMs < 2 * attemptMs;
      try {
        return await this.#sessions.connect(
          port,
          port.admit(address),
          replyTo,
          peer.url,
          last ? leftMs : attemptMs,
          window,
        );
      } catch (error) {
        if (isLostHello(error)) {
          this.#assertOpen();
          const waitMs = pauseMs(lostHellos++, lostHelloPause);
          if (systemClock.now() + waitMs > untilMs) throw error;
          await this.#pauses.pause(waitMs);
          continue;
        }
        if (!(error instanceof ConnectSilence)) throw error;
        if (last) throw new ConnectSilence(peer.url, timeoutMs);
        attemptMs *= 2;
      }
    }
  }
}
