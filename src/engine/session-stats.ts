import type { WindowStats } from "../base/flow/in-flight-window.ts";
import { principalOf } from "../security/identity.ts";
import type { Exchange } from "../session/calls/exchange.ts";
import type { CallsGauge } from "../session/calls/traffic.ts";

/** An open session of an engine. Either side may have connected. */
export interface SessionStats {
  /** The session's name, the same on both sides, and in `engine.calls()`. */
  readonly session: string;
  /** The URL that this side has connected to; if the peer has connected, its incarnation and the fabric. */
  readonly peer: string;
  /** The peer's version and fabric. */
  readonly agent: string;
  /** `engine.incarnation` of the peer. */
  readonly incarnation: bigint;
  /** The identity that the peer has proven, such as "certificate NAME" or "process UID". "" without a proof. */
  readonly identity: string;
  /** `blocked`: the peer's event loop computes, and its background thread answers pings for it. */
  readonly state: "connected" | "blocked" | "draining";
  readonly calls: CallsGauge;
  /** The window of the calls that this side makes. */
  readonly window: WindowStats;
  /** Bytes of encoded frames that wait for room to be sent. */
  readonly queuedBytes: number;
}

/** The open sessions of these exchanges. */
export function sessionStats(exchanges: Iterable<Exchange>): SessionStats[] {
  const all: SessionStats[] = [];
  for (const { session, outgoing, incoming } of exchanges) {
    const { remote, remoteState } = session;
    if (session.state !== "open" || remote === undefined) continue;
    all.push({
      session: session.name,
      peer: session.peerName,
      agent: remote.agent,
      incarnation: remote.incarnation,
      identity: principalOf(session.identity),
      state: remoteState.drains ? "draining" : remoteState.busy ? "blocked" : "connected",
      calls: { out: outgoing.usersSize, waiting: outgoing.waiting.size, in: incoming.usersSize },
      window: outgoing.window.stats(),
      queuedBytes: session.outbox.queuedBytes,
    });
  }
  return all;
}
