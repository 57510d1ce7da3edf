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
  readonly #frontUrl: string;
  readonly #kept: GroupMember | undefined;
  #listener: ResolverListener | undefined;
  #told: readonly LaneAddress[] = [];

  /** @throws RpcError `internal` for a lane that is named at no address of the front's kind. */
  constructor(front: Peer, lanes: readonly LaneAddress[], opener: LaneOpener) {
    this.#frontUrl = front.url;
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

  /** @throws RpcError `internal` as the constructor. */
  onLanes(lanes: readonly LaneAddress[]): void {
    const before = this.#told;
    this.#told = this.#reachable(lanes);
    this.#listener?.onUrls(this.#told.map(({ url }) => url));
    const living = new Set(this.#told.map(({ incarnation }) => incarnation));
    for (const { url, incarnation } of before)
      if (incarnation !== 0n && !living.has(incarnation)) this.group.onLaneGone(url, incarnation);
    const known = new Set(before.map(({ incarnation }) => incarnation));
    for (const { url, incarnation } of this.#told)
      if (incarnation !== 0n && !known.has(incarnation)) this.group.connectNow(url);
  }

  /** As they can be reached from here: one that listens on every interface does so where the front was found. */
  #reachable(lanes: readonly LaneAddress[]): LaneAddress[] {
    const front = parseUrl(this.#frontUrl);
    return lanes.map(({ url, incarnation }) => {
      const lane = parsed(url);
      if (lane?.scheme !== front.scheme)
        throw new RpcError({
          code: "internal",
          message: `${this.#frontUrl} names a lane at ${url}, which is no address of ${front.scheme}`,
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

function parsed(url: string): FabricUrl | undefined {
  try {
    return parseUrl(url);
  } catch {
    return undefined;
  }
}
