import { rendezvous } from "../balance/rendezvous.ts";
import type { Resolver } from "../balance/resolver.ts";
import type { Callee, OutgoingCall } from "../call/outgoing-call.ts";
import type { ClientOptions } from "../client/call-options.ts";
import { type Client, createClient } from "../client/client.ts";
import { RetriedCalls } from "../client/retried-calls.ts";
import type { SessionSource } from "../client/session-source.ts";
import type { AnyService } from "../contract/service.ts";
import { closedError } from "../errors/closed.ts";
import type { RpcCode } from "../errors/code.ts";
import { RpcError } from "../errors/rpc-error.ts";
import type { Session } from "../session/session.ts";
import type { SessionHost } from "../session/session-host.ts";
import type { SessionObserver } from "../session/session-observer.ts";
import { GroupMember } from "./group-member.ts";
import type { ResolvedGroupOptions } from "./group-options.ts";
import { Pauses } from "./pauses.ts";
import { Peer, type PeerState } from "./peer.ts";
import { pauseMs } from "./reconnect.ts";
import { mostWaiting, tooManyWait } from "./wait-for-session.ts";

/** One peer of a group at this moment. */
export interface GroupMemberStats {
  readonly url: string;
  readonly state: PeerState;
  /** Calls to it that have left and have no terminal frame yet. */
  readonly callsOut: number;
  /** Calls to it that wait for a place in its window. */
  readonly callsWaiting: number;
  /** Left alone because its calls failed. */
  readonly ejected: boolean;
  /** Its share beside the others', below 1 while it starts slowly. */
  readonly weight: number;
}

/**
 * Several peers that serve the same, as one. Made by `engine.connect` with several URLs or a resolver. Each call goes to one that is ready, chosen by the policy:
 * connected; else suspected, else ejected ones. When none of these is left a call waits for the first that can be connected to. Those that are lost are tried again in the background.
 */
export class PeerGroup implements SessionSource, AsyncDisposable {
  readonly host: SessionHost;
  /** @internal */
  readonly retried = new RetriedCalls();
  readonly name: string;
  readonly #options: ResolvedGroupOptions;
  readonly #newPeer: (url: string) => Peer;
  readonly #onClosed: (group: PeerGroup) => void;
  readonly #onChange: () => void;
  readonly #members = new Map<string, GroupMember>();
  /** No members any more, but with calls in flight. */
  readonly #retiring = new Set<GroupMember>();
  readonly #byPeer = new WeakMap<object, GroupMember>();
  readonly #stopResolver: () => void;
  /** Those a call may go to; undefined when it must be found out anew. */
  #ready: readonly GroupMember[] | undefined;
  /** Until when `#ready` holds: then somebody's ejection ends. */
  #readyUntilMs = Number.POSITIVE_INFINITY;
  /** Settles with the first member that is connected. */
  readonly #first: Promise<void>;
  #onFirst!: (error?: unknown) => void;
  #resolved = false;
  /** As the resolver named them. */
  #urls: readonly string[] = [];
  readonly #pauses: Pauses;
  /** Calls for which nobody is ready. */
  #waiting = 0;
  #closed = false;

  /** @internal */
  constructor(
    host: SessionHost,
    resolver: Resolver,
    options: ResolvedGroupOptions,
    newPeer: (url: string) => Peer,
    onClosed: (group: PeerGroup) => void,
    onChange: () => void = () => {},
  ) {
    this.host = host;
    this.name = `one of ${resolver.name}`;
    this.#options = options;
    this.#newPeer = newPeer;
    this.#onClosed = onClosed;
    this.#onChange = onChange;
    this.#pauses = new Pauses(host.clock, true);
    this.#first = new Promise((resolve, reject) => {
      this.#onFirst = (error) => (error === undefined ? resolve() : reject(error));
    });
    this.#first.catch(() => {});
    this.#stopResolver = resolver.start({
      onUrls: (urls) => this.#onUrls(urls),
      onError: (cause) => {
        // Later ones leave the members as they are.
        if (!this.#resolved) this.#onFirst(unavailable(`${this.name} could not be resolved`, cause));
      },
    });
  }

  /** Its members, in the order they were named. */
  get members(): GroupMemberStats[] {
    const nowMs = this.host.clock.now();
    return this.#named().map(({ peer, outlier, weight }) => ({
      url: peer.url,
      state: peer.state,
      callsOut: peer.callsOut,
      callsWaiting: peer.callsWaiting,
      ejected: outlier.ejected(nowMs),
      weight,
    }));
  }

  #named(): GroupMember[] {
    return [...new Set(this.#urls)].flatMap((url) => this.#members.get(url) ?? []);
  }

  /** @internal Of all members. */
  get callsOut(): number {
    let calls = 0;
    for (const { peer } of this.#members.values()) calls += peer.callsOut;
    return calls;
  }

  /** @internal */
  get callsWaiting(): number {
    let calls = 0;
    for (const { peer } of this.#members.values()) calls += peer.callsWaiting;
    return calls;
  }

  /** @internal */
  get idle(): boolean {
    return [...this.#members.values(), ...this.#retiring].every(({ peer }) => peer.idle);
  }

  /** @internal What the first that is connected serves. */
  get services(): string[] | undefined {
    return this.#named().find(({ peer }) => peer.current !== undefined)?.peer.services;
  }

  /** A typed client whose calls go to the members. Costs and holds nothing. */
  client<S extends AnyService>(service: S, options: ClientOptions = {}): Client<S> {
    return createClient(this, service, options);
  }

  /** Closes all its peers; their open calls fail with `unavailable`. Safe to call twice. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.retried.close(closedError(this.name));
    this.#stopResolver();
    for (const member of [...this.#members.values(), ...this.#retiring]) member.close();
    this.#pauses.endAll();
    this.#onFirst(closedError(this.name));
    this.#onClosed(this);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
  }

  /** @internal Resolves when the first member is connected, rejects when all have failed once. */
  connected(): Promise<void> {
    return this.#first;
  }

  /** @internal The engine of that incarnation there is gone, `certain` or not. */
  onLaneGone(url: string, incarnation: bigint, certain: boolean): void {
    for (const { peer } of [...this.#members.values(), ...this.#retiring])
      if (peer.url === url) peer.onGone(incarnation, certain);
  }

  /** @internal Tries the member there now, however long its pause is. Rejects with what that failed with. */
  async tryNow(url: string): Promise<void> {
    await this.#members.get(url)?.connect();
  }

  /** @internal */
  get isReached(): boolean {
    return [...this.#members.values()].some(({ peer }) => peer.current !== undefined);
  }

  /** @internal Whether calls can go to the member at this URL: `now`, or, as far as is known, soon, since its first try is under way. */
  serves(url: string, when: "now" | "soon"): boolean {
    const member = this.#members.get(url);
    if (member === undefined) return false;
    return isOpen(member.peer) || (when === "soon" && member.begins);
  }

  /** @internal Whether a member is reached at this URL. */
  has(url: string): boolean {
    return this.#members.has(url);
  }

  /** @internal */
  get closed(): boolean {
    return this.#closed;
  }

  /** @internal */
  get patient(): boolean {
    return this.#options.reconnect.whileLost === "wait";
  }

  /** @internal */
  session(call?: OutgoingCall, input?: unknown): Session | Promise<Session> {
    if (this.#closed) throw closedError(this.name);
    const callee = call?.boundTo;
    if (callee !== undefined) return this.#sessionAt(callee, call, input);
    const pinned = this.#options.pins ? this.#pinned(call, input) : undefined;
    if (pinned !== undefined) return pinned.peer.session(call, input);
    const ready = this.#readyNow();
    if (ready.length === 0) return this.#sessionOfAny(call, input);
    return this.#pick(ready, call, input).peer.session(call, input);
  }

  #pick(ready: readonly GroupMember[], call: OutgoingCall | undefined, input: unknown): GroupMember {
    try {
      const key = this.#options.pins ? undefined : this.#keyOf(call, input);
      const picked: unknown = this.#options.policy.pick(ready, key);
      if (!(picked instanceof GroupMember)) throw new TypeError("the policy must pick one of the candidates");
      return picked;
    } catch (cause) {
      throw this.#misdirected(cause);
    }
  }

  /** The one that the call belongs to, ready or not. */
  #pinned(call: OutgoingCall | undefined, input: unknown): GroupMember | undefined {
    try {
      const key = this.#keyOf(call, input);
      return key === undefined
        ? undefined
        : this.#members.get(this.#urls[rendezvous(key, this.#urls.length)] ?? "");
    } catch (cause) {
      throw this.#misdirected(cause);
    }
  }

  #keyOf(call: OutgoingCall | undefined, input: unknown): string | undefined {
    const key: unknown =
      call === undefined ? undefined : this.#options.keyOf?.({ method: call.methodPath, input });
    if (key === undefined || typeof key === "string") return key;
    throw new TypeError(`keyOf must give a string or undefined, it gave ${typeof key}`);
  }

  #misdirected(cause: unknown): RpcError {
    const message = `${this.name}: keyOf or the policy failed: ${cause instanceof Error ? cause.message : String(cause)}`;
    return new RpcError({ code: "internal", message, origin: "local", cause });
  }

  /** @internal */
  onSettled(session: Session, code: RpcCode | "ok"): void {
    const member = this.#memberOf(session.observer);
    member?.peer.onSettled(session, code);
    if (member === undefined || !member.outlier.settled(code)) return;
    const nowMs = this.host.clock.now();
    let ejected = 1;
    for (const { outlier } of this.#members.values()) if (outlier.ejected(nowMs)) ejected++;
    if (member.outlier.ejected(nowMs) || ejected > this.#options.ejection.maxShare * this.#members.size)
      return;
    member.outlier.eject(nowMs);
    this.#changed();
  }

  /** Whose session it is: the member's own, or that of a lane of its. */
  #memberOf(observer: SessionObserver | undefined): GroupMember | undefined {
    if (observer === undefined) return undefined;
    const member = this.#byPeer.get(observer);
    return (
      member ?? (observer instanceof Peer && observer.front ? this.#byPeer.get(observer.front) : undefined)
    );
  }

  #readyNow(): readonly GroupMember[] {
    if (
      this.#ready !== undefined &&
      (this.#readyUntilMs === Infinity || this.host.clock.now() < this.#readyUntilMs)
    )
      return this.#ready;
    const nowMs = this.host.clock.now();
    const open = [...this.#members.values()].filter(({ peer }) => isOpen(peer) && peer.takesCalls);
    const kept = open.filter(({ outlier }) => !outlier.ejected(nowMs));
    const trusted = kept.filter(({ peer }) => peer.state === "connected");
    // A peer that fails some calls is better than none.
    this.#ready = trusted.length > 0 ? trusted : kept.length > 0 ? kept : open;
    this.#readyUntilMs = Math.min(
      ...open.map(({ outlier }) => (outlier.ejected(nowMs) ? outlier.untilMs : Number.POSITIVE_INFINITY)),
    );
    return this.#ready;
  }

  /** Whoever else is ready: only that process knows whether the call was executed. */
  #sessionAt(callee: Callee, call: OutgoingCall | undefined, input: unknown): Session | Promise<Session> {
    const peer = this.#memberAt(callee)?.peer;
    return peer?.current === undefined ? this.#sessionOfAny(call, input) : peer.session(call, input);
  }

  /** Of two at one URL, one of which retires, the one that the callee is. */
  #memberAt({ url, incarnation }: Callee): GroupMember | undefined {
    const retiring = [...this.#retiring].find(
      ({ peer }) => peer.url === url && peer.incarnation === incarnation,
    );
    return (
      retiring ??
      this.#members.get(url) ??
      [...this.#members.values(), ...this.#retiring].find(({ peer }) => peer.hasLane(url))
    );
  }

  /** Those a call may wait for. */
  #candidates(call: OutgoingCall | undefined): readonly GroupMember[] {
    const callee = call?.boundTo;
    if (callee === undefined)
      return [...this.#members.values()].filter(({ peer }) => peer.state !== "draining");
    const member = this.#memberAt(callee);
    return member === undefined ? [] : [member];
  }

  /** Nobody is ready: whoever can be connected to first. Tried once, or as long as the call waits. */
  #sessionOfAny(call: OutgoingCall | undefined, input: unknown): Promise<Session> {
    if (this.#waiting >= mostWaiting(this.#options.window)) throw tooManyWait(this.#waiting, this.name);
    this.#waiting++;
    return this.#firstOfAny(call, input).finally(() => this.#waiting--);
  }

  async #firstOfAny(call: OutgoingCall | undefined, input: unknown): Promise<Session> {
    for (let attempt = 0; ; attempt++) {
      try {
        return await Promise.any(this.#candidates(call).map(async ({ peer }) => peer.session(call, input)));
      } catch (error) {
        if (this.#closed) throw closedError(this.name);
        const waits = this.patient && call !== undefined;
        if (!waits || call.settled || !this.host.intake.calls)
          throw unavailable(this.#unreachable(call), (error as AggregateError).errors.at(-1));
      }
      await this.#pauses.pause(pauseMs(attempt, this.#options.reconnect));
      if (call?.settled) throw unavailable(`${this.name}: nobody waits any more`, undefined);
      if (this.#closed) throw closedError(this.name);
    }
  }

  #unreachable(call: OutgoingCall | undefined): string {
    const callee = call?.boundTo;
    return callee === undefined
      ? `${this.name}: nobody can be reached`
      : `${callee.url} cannot be reached, where an earlier attempt may have been executed`;
  }

  #onUrls(urls: readonly string[]): void {
    if (this.#closed) return;
    this.#resolved = true;
    this.#urls = urls;
    const wanted = new Set(urls);
    for (const [url, member] of this.#members) {
      if (wanted.has(url)) continue;
      this.#members.delete(url);
      this.#retiring.add(member);
      member.retire(() => this.#retiring.delete(member));
    }
    const tries: Promise<void>[] = [];
    for (const url of wanted) {
      if (this.#members.has(url)) continue;
      const peer = this.#newPeer(url);
      const member = new GroupMember(peer, this.#options, this.host.clock, () => this.#changed());
      this.#members.set(url, member);
      this.#byPeer.set(peer, member);
      tries.push(member.connect());
    }
    this.#changed();
    Promise.any(tries).then(
      () => this.#onFirst(),
      (error: AggregateError) => {
        if (tries.length > 0 || this.#members.size === 0)
          this.#onFirst(unavailable(`${this.name}: nobody can be reached`, error.errors.at(-1)));
      },
    );
  }

  #changed(): void {
    this.#ready = undefined;
    this.#onChange();
  }
}

const isOpen = ({ state }: Peer): boolean => state === "connected" || state === "suspect";

function unavailable(message: string, cause: unknown): RpcError {
  const why = cause instanceof Error ? `: ${cause.message}` : "";
  return new RpcError({ code: "unavailable", message: `${message}${why}`, origin: "local", cause });
}
