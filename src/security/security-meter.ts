import { channels } from "../base/observe/channels.ts";
import { type Identity, principalOf } from "./identity.ts";

/**
 * Why a peer or a call was refused.
 *
 * Calls:
 * - `not_allowed`: `allow` did not permit the method.
 * - `not_authorized`: `authorize` did not permit the call.
 * - `unproven`: the same, and the peer has no identity.
 * - `failed`: `allow` or `authorize` threw.
 * - `other_identity`: the call, or a lane, belongs to another identity.
 *
 * Handshakes:
 * - `certificate`: it was missing, or not verified, or `identify` gave it no name.
 * - `name`: the peer did not prove the name in the URL.
 * - `key`: the pre-shared key is unknown or another.
 * - `plain`: the peer has no security, and this engine requires it; or the reverse.
 * - `protocol`: the messages of the handshake were wrong, or the sides share no suite.
 * - `time`: it took longer than `handshakes.timeoutMs`.
 * - `crowded`: too many handshakes were open.
 */
export type SecurityRefusal =
  | "not_allowed"
  | "not_authorized"
  | "unproven"
  | "failed"
  | "other_identity"
  | "certificate"
  | "name"
  | "key"
  | "plain"
  | "protocol"
  | "time"
  | "crowded";

/** What `cinnabar:security.refused` publishes. */
export interface SecurityRefused {
  readonly refusal: SecurityRefusal;
  /** The peer's URL, or the known part of it. */
  readonly peer: string;
  readonly identity: Identity | undefined;
  /** `service/method`, where a call was refused. */
  readonly method?: string;
  /** The reason for people. Never a key. */
  readonly why: string;
  /** The error that a function of the user threw. */
  readonly error?: unknown;
}

/** The refusals of an engine, and its open sessions by identity. */
export interface SecurityStats {
  /** Handshakes that ended well since the engine opened. */
  readonly handshakes: number;
  /** Handshakes that are under way. */
  readonly openHandshakes: number;
  /** Refusals since the engine opened, by reason. Reasons without a refusal are absent. */
  readonly refusals: Readonly<Partial<Record<SecurityRefusal, number>>>;
  /**
   * Dropped messages of sealed sessions: forged, damaged or repeated, keepalives too. The counters distinguish these
   * cases.
   */
  readonly forgeries: number;
  /**
   * Open sessions by the peer's identity, the most first, 100 at most: "certificate NAME", "psk NAME", "process UID",
   * "local", and "" for peers without an identity.
   */
  readonly sessions: readonly { readonly identity: string; readonly sessions: number }[];
}

const mostIdentities = 100;

/** Counts the events of one engine's security. */
export class SecurityMeter {
  handshakes = 0;
  openHandshakes = 0;
  readonly #refusals: Partial<Record<SecurityRefusal, number>> = {};

  onRefused(refused: SecurityRefused): void {
    this.#refusals[refused.refusal] = (this.#refusals[refused.refusal] ?? 0) + 1;
    if (channels.securityRefused.hasSubscribers) channels.securityRefused.publish(refused);
  }

  stats(identities: Iterable<Identity | undefined>, forgeries: number): SecurityStats {
    const { handshakes, openHandshakes } = this;
    const counts = new Map<string, number>();
    for (const identity of identities) {
      const principal = principalOf(identity);
      counts.set(principal, (counts.get(principal) ?? 0) + 1);
    }
    const sessions = [...counts]
      .map(([identity, count]) => ({ identity, sessions: count }))
      .sort((a, b) => b.sessions - a.sessions)
      .slice(0, mostIdentities);
    return { handshakes, openHandshakes, refusals: { ...this.#refusals }, forgeries, sessions };
  }
}
