import type { Resolver, ResolverListener } from "../balance/resolver.ts";
import { RpcError } from "../errors/rpc-error.ts";
import { isWildcard } from "../fabric/host.ts";
import { type FabricUrl, formatHostUrl, hasHosts, parseUrl } from "../fabric/url.ts";
import type { LaneAddress } from "../wire/handshake.ts";
import type { GroupMember } from "./group-member.ts";
import type { Peer } from "./peer.ts";
import type { PeerGroup } from "./peer-group.ts";

/** How the lanes of a peer are reached: the engine's business. */
export interface LaneOpener {
  group(front: Peer, resolver: Resolver): PeerGroup;
  /** Keeps the peer that speaks for them: where it is lost, it is tried again in the background. Undefined where somebody does so already. */
  keep?(front: Peer): GroupMember;
}

/**
 * The lanes that a peer speaks for: where its calls go. Begins with the first list of lanes, follows each further one, and ends with the peer. The peer's own session is kept, since it is there that a change
 * is told, and no call would find out that it has been lost.
 */
export class PeerLanes implements Resolver {
  readonly name: string;
  readonly group: PeerGroup;
  readonly #front: Peer;
  readonly #kept: GroupMember | undefined;
  #listener: ResolverListener | undefined;
  #told: readonly LaneAddress[] = [];

  /** @throws RpcError `internal` for a lane that is named at no address of the front's kind. */
  constructor(front: Peer, lanes: readonly LaneAddress[], opener: LaneOpener) {
    this.#front = front;
    this.name = `the lanes of ${front.url}`;
    this.#told = this.#reachable(lanes);
    this.group = opener.group(front, this);
    this.#kept = opener.keep?.(front);
  }

  start(listener: ResolverListener): () => void {
    this.#listener = listener;
    listener.onUrls(this.#told.map(({ url }) => url));
    return () => {
      this.#listener = undefined;
    };
  }

  /** Whether any of them is connected, or is said to be there and tried for the first time: whoever has just come is no worse than others. */
  get serve(): boolean {
    return this.#told.some(({ url, incarnation }) =>
      this.group.serves(url, incarnation === 0n ? "now" : "soon"),
    );
  }

  /**
   * `byTheSame`: who named them has named those before, too, and knows for certain that those it does not name any more have ended. Another engine at its address knows nothing of them.
   *
   * @throws RpcError `internal` as the constructor.
   */
  onLanes(lanes: readonly LaneAddress[], byTheSame: boolean): void {
    const before = this.#told;
    this.#told = this.#reachable(lanes);
    this.#listener?.onUrls(this.#told.map(({ url }) => url));
    const living = new Set(this.#told.map(({ incarnation }) => incarnation));
    for (const { url, incarnation } of before)
      if (incarnation !== 0n && !living.has(incarnation)) this.group.onLaneGone(url, incarnation, byTheSame);
    const known = new Set(before.map(({ incarnation }) => incarnation));
    for (const { url, incarnation } of this.#told)
      if (incarnation !== 0n && !known.has(incarnation)) this.group.tryNow(url).catch(() => {});
  }

  /**
   * Resolves when all lanes that are said to be there have been tried, or the time is over, and one is connected: so that the first calls find them all. While none is, those that are
   * being replaced are waited for.
   *
   * @throws RpcError `unavailable` when none can be reached.
   */
  async reached(timeoutMs: number): Promise<void> {
    const { clock } = this.#front.host;
    const untilMs = clock.now() + timeoutMs;
    const isThere = ({ incarnation }: LaneAddress) => incarnation !== 0n;
    let failed: unknown;
    const tryAll = (lanes: readonly LaneAddress[]) =>
      Promise.all(
        lanes.map(({ url }) =>
          this.group.tryNow(url).catch((error) => {
            failed = error;
          }),
        ),
      );
    await this.#atMost(timeoutMs, tryAll(this.#told.filter(isThere)));
    while (!this.group.isReached) {
      const leftMs = untilMs - clock.now();
      if (leftMs <= 0 || this.group.closed || this.#told.every(isThere)) throw this.#unreached(failed);
      await this.#atMost(Math.min(leftMs, lookMs));
      // Those that have come back meanwhile are tried as soon as they are told of; without that word, now and then.
      await this.#atMost(
        untilMs - clock.now(),
        Promise.any(this.#told.map(({ url }) => this.group.tryNow(url))),
      );
    }
  }

  /** Until the work is done, however it ends, or the time is over. */
  #atMost(ms: number, work?: Promise<unknown>): Promise<void> {
    return new Promise((resolve) => {
      const cancel = this.#front.host.clock.timer(Math.max(1, ms), resolve);
      const done = () => {
        cancel();
        resolve();
      };
      work?.then(done, done);
    });
  }

  #unreached(cause: unknown): RpcError {
    const why = cause instanceof Error ? `: ${cause.message}` : "";
    return new RpcError({
      code: "unavailable",
      message: `none of ${this.name} can be reached${why}`,
      origin: "local",
      cause,
    });
  }

  /** As they can be reached from here: one that listens on every interface does so where the front was found. */
  #reachable(lanes: readonly LaneAddress[]): LaneAddress[] {
    const front = parseUrl(this.#front.url);
    return lanes.map(({ url, incarnation }) => {
      const lane = parsed(url);
      if (lane?.scheme !== front.scheme)
        throw new RpcError({
          code: "internal",
          message: `${this.#front.url} names a lane at ${url}, which is no address of ${front.scheme}`,
          origin: "remote",
        });
      const { scheme, host, port } = lane;
      const isEverywhere = hasHosts(scheme) && isWildcard(host);
      return { url: isEverywhere ? formatHostUrl(scheme, front.host, port) : url, incarnation };
    });
  }

  close(): void {
    this.#kept?.leave();
    this.group.close();
  }
}

/** How often lanes that are being replaced are tried while nobody else serves. */
const lookMs = 50;

function parsed(url: string): FabricUrl | undefined {
  try {
    return parseUrl(url);
  } catch {
    return undefined;
  }
}
