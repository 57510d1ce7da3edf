import { setTimeout as pause } from "node:timers/promises";
import { RpcError } from "cinnabar/standard";
import type { Membership } from "../authority/authority.ts";
import { isSameMember, type Member, memberOf } from "../view/view.ts";
import { type EtcdGateway, persist, withTimeLimit } from "./gateway.ts";
import { type GroupKeys, type GroupState, lives } from "./group-keys.ts";
import { EtcdObservation } from "./observation.ts";

/** When several members see a death, the first publishes at once. Each further one waits this much longer. */
const staggerMs = 100;
const maxStaggerMs = 2_000;
/** The pause before another try, when etcd was not reached or another process was first. */
const retryMs = 500;
/** How long a member that leaves tries to publish a view without itself. */
const leaveTimeoutMs = 10_000;

export interface MembershipParts {
  readonly gateway: EtcdGateway;
  readonly keys: GroupKeys;
  readonly self: Member;
  readonly lease: Lease;
  /** What the group is after this member has joined. */
  readonly state: GroupState & { readonly view: NonNullable<GroupState["view"]> };
  /** Whether a death that the failure detector reports removes a member with a running lease. */
  readonly evictsReported: boolean;
  /** Whether the membership ends when the lease may have ended because etcd cannot be reached. */
  readonly endsUnreachable: boolean;
}

/**
 * A member of a group in etcd. Its lease shows that it lives. Every member removes others with an ended lease, by a
 * transaction that fails if the view has changed meanwhile. So the views have one order.
 */
export class EtcdMembership extends EtcdObservation implements Membership {
  readonly self: Member;
  readonly #parts: MembershipParts;
  readonly #reported = new Set<Member>();
  #lease: Lease;
  #evicting: NodeJS.Timeout | undefined;
  #kept: Promise<void> | undefined;

  constructor(parts: MembershipParts) {
    super(parts.keys, parts.state, parts.state.view);
    this.#parts = parts;
    this.#lease = parts.lease;
    this.self = parts.self;
  }

  override start(): void {
    super.start();
    this.#kept ??= this.#keep().catch((error) => this.end(error));
  }

  report(member: Member, status: "alive" | "dead" | "left"): void {
    const reported = [...this.#reported].find((other) => isSameMember(member, other));
    if (reported !== undefined) this.#reported.delete(reported);
    if (status === "alive" || !this.#parts.evictsReported) return;
    this.#reported.add(member);
    this.#consider();
  }

  async leave(): Promise<void> {
    const { signal } = this.ending;
    try {
      if (!signal.aborted) await withTimeLimit(leaveTimeoutMs, [signal], (limit) => this.#leave(limit));
    } finally {
      await this.close();
    }
  }

  override async close(): Promise<void> {
    await super.close();
    await this.#kept;
  }

  protected override onState(): void {
    const { view } = this.state;
    for (const member of this.#reported)
      if (view === undefined || !isSameMember(member, memberOf(view, member.rank)))
        this.#reported.delete(member);
    this.#consider();
  }

  protected override end(error?: unknown): void {
    clearTimeout(this.#evicting);
    super.end(error);
  }

  /** Members that the next view must not have. No member removes itself. */
  #dead(state: GroupState): readonly Member[] {
    const reported = [...this.#reported];
    return (state.view?.members ?? []).filter(
      (member) =>
        !isSameMember(member, this.self) &&
        (!lives(state, member) || reported.some((other) => isSameMember(member, other))),
    );
  }

  #consider(delayMs = 0): void {
    if (this.#evicting !== undefined || this.ending.signal.aborted) return;
    const dead = this.#dead(this.state);
    if (dead.length === 0) return;
    const living = (this.state.view?.members ?? []).filter((member) => !dead.includes(member));
    const place = living.findIndex((member) => isSameMember(member, this.self));
    // A view without this member is not this member's to follow up.
    if (place < 0) return;
    const ms = delayMs + Math.min(place * staggerMs, maxStaggerMs);
    this.#evicting = setTimeout(() => void this.#evict(), ms);
  }

  async #evict(): Promise<void> {
    const { state } = this;
    const isPublished = await this.#publishWithout(state, this.#dead(state)).catch(() => false);
    this.#evicting = undefined;
    // What is published comes back as another state, before or after the answer.
    if (!isPublished) this.#consider(retryMs);
    else if (this.state !== state) this.#consider();
  }

  async #leave(signal: AbortSignal): Promise<void> {
    for (;;) {
      const { state } = await this.keys.read(signal);
      if (!isSameMember(this.self, memberOf(state.view ?? this.view, this.self.rank))) break;
      if (await this.#publishWithout(state, [this.self])) break;
    }
    await this.#lease.revoke(signal);
  }

  async #publishWithout(state: GroupState, gone: readonly Member[]): Promise<boolean> {
    if (gone.length === 0) return false;
    const members = (state.view?.members ?? []).filter(
      (member) => !gone.some((one) => isSameMember(one, member)),
    );
    const released = gone.filter((member) => lives(state, member)).map(({ rank }) => rank);
    return this.keys.publish(state, { members, nextRank: state.nextRank, released }, this.ending.signal);
  }

  /** Keeps the lease. If it ends before another member has noticed, takes the rank again with a new lease. */
  async #keep(): Promise<void> {
    const { signal } = this.ending;
    const { gateway, endsUnreachable } = this.#parts;
    try {
      for (;;) {
        await this.#lease.keep(signal, () => endsUnreachable && this.end(this.#unreachable()));
        this.#lease = await this.#holdAgain(gateway, signal);
      }
    } catch (error) {
      if (!signal.aborted) throw error;
    }
  }

  async #holdAgain(gateway: EtcdGateway, signal: AbortSignal): Promise<Lease> {
    const { rank, incarnation } = this.self;
    const lease = await persist(() => Lease.grant(gateway, this.#lease.ttlMs, signal), signal);
    for (;;) {
      const { state } = await persist(() => this.keys.read(signal), signal);
      // Another member has noticed. The view without this member comes by the watch, and the lease has no key.
      if (!isSameMember(this.self, memberOf(state.view ?? this.view, rank))) return lease;
      if (await persist(() => this.keys.hold(state, { rank, incarnation, lease: lease.id }, signal), signal))
        return lease;
    }
  }

  #unreachable(): RpcError {
    return new RpcError({
      code: "unavailable",
      message: `group "${this.view.group}": etcd was not reached for ${this.#lease.ttlMs} ms; others may have removed this member`,
    });
  }
}

/** A lease of etcd: keys that belong to it go when it was not renewed for its time. */
export class Lease {
  readonly id: string;
  /** For how long it lasts without being renewed. etcd may choose another time than it was asked for. */
  readonly ttlMs: number;
  readonly #gateway: EtcdGateway;
  #renewedAtMs: number;

  static async grant(gateway: EtcdGateway, ttlMs: number, signal: AbortSignal): Promise<Lease> {
    const askedAtMs = performance.now();
    const { ID, TTL } = await gateway.call(
      "/v3/lease/grant",
      { TTL: String(Math.ceil(ttlMs / 1000)) },
      signal,
    );
    return new Lease(gateway, String(ID), Number(TTL) * 1000, askedAtMs);
  }

  private constructor(gateway: EtcdGateway, id: string, ttlMs: number, renewedAtMs: number) {
    this.#gateway = gateway;
    this.id = id;
    this.ttlMs = ttlMs;
    this.#renewedAtMs = renewedAtMs;
  }

  /** For how long it surely lasts. The time counts from when a renewal was asked for. 0 or less: it may have ended. */
  get remainingMs(): number {
    return this.#renewedAtMs + this.ttlMs - performance.now();
  }

  /**
   * Renews it three times in its time, until it has ended or `signal` aborts.
   *
   * @param onOverdue called when the lease may have ended because etcd was not reached, once for each outage
   * @returns when etcd reports that the lease has ended
   * @throws the reason of `signal`; RpcError for what etcd refuses
   */
  async keep(signal: AbortSignal, onOverdue: () => void): Promise<void> {
    let failures = 0;
    // A timer of its own: a request may still wait for an answer when the lease ends.
    let overdue = setTimeout(onOverdue, this.remainingMs);
    try {
      for (;;) {
        await pause(this.ttlMs / (failures > 0 ? 10 : 3), undefined, { signal });
        const askedAtMs = performance.now();
        try {
          const { TTL } = await withTimeLimit(this.ttlMs / 3, [signal], (soon) =>
            this.#gateway.call("/v3/lease/keepalive", { ID: this.id }, soon),
          );
          if (!(Number(TTL) > 0)) return;
          this.#renewedAtMs = askedAtMs;
          failures = 0;
          clearTimeout(overdue);
          overdue = setTimeout(onOverdue, this.remainingMs);
        } catch (error) {
          signal.throwIfAborted();
          if (!(error instanceof RpcError && error.code === "unavailable")) throw error;
          failures += 1;
        }
      }
    } finally {
      clearTimeout(overdue);
    }
  }

  async revoke(signal: AbortSignal): Promise<void> {
    await this.#gateway.call("/v3/lease/revoke", { ID: this.id }, signal);
  }
}
