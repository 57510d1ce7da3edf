import { lookup } from "node:dns/promises";
import { isIP } from "node:net";
import { type Client, type Identity, type Peer, RpcError } from "cinnabar/standard";
import { atHost, hostOf, isWildcard, portOf, schemeOf } from "./addresses.ts";
import { laneOfKey } from "./lane-of-key.ts";
import { LaneDirectory, type ListedLanes } from "./lanes-service.ts";

/** A lane that a client may reach. */
export interface FoundLane {
  readonly server: FollowedServer;
  readonly number: number;
  readonly url: string;
  /** The engine that is meant; 0 for any. */
  readonly incarnation: bigint;
}

/** Gets what a server says of its lanes. */
export interface ServerListener {
  onLanes(server: FollowedServer): void;
  /** The server does not answer now. Its last list stays valid. */
  onError(server: FollowedServer, error: unknown): void;
  /** The engine of that incarnation has ended for certain. */
  onGone(url: string, incarnation: bigint): void;
}

/** The bounds of the pause before a server is asked again, in milliseconds. */
export interface PauseBounds {
  readonly baseDelayMs: number;
  readonly maxDelayMs: number;
}

/** Follows the lanes of one server. A server without lanes is its own only lane. */
export class FollowedServer {
  readonly #peer: Peer;
  readonly #client: Client<typeof LaneDirectory>;
  readonly #listener: ServerListener;
  readonly #pauses: PauseBounds;
  /** The engine that is meant, where the server has no lanes; 0 for any. */
  readonly #meant: bigint;
  /** Those that have an engine; undefined until the server has answered. */
  #lanes: readonly FoundLane[] | undefined;
  /** How many lanes there are, with those that have no engine now; undefined for a server without lanes. */
  #count: number | undefined;
  /** The engine that has named the lanes. */
  #namedBy: bigint | undefined;
  #identity: Identity | undefined;
  #error: unknown;
  #isClosed = false;
  #endPause = () => {};

  /** It owns the peer. */
  constructor(peer: Peer, meant: bigint | undefined, pauses: PauseBounds, listener: ServerListener) {
    this.#peer = peer;
    this.#client = peer.client(LaneDirectory, { inherit: false });
    this.#meant = meant ?? 0n;
    this.#pauses = pauses;
    this.#listener = listener;
    void this.#follow();
  }

  get lanes(): readonly FoundLane[] {
    return this.#lanes ?? [];
  }

  get isKnown(): boolean {
    return this.#lanes !== undefined;
  }

  /** Why it could not be asked the last time. */
  get error(): unknown {
    return this.#error;
  }

  get url(): string {
    return this.#peer.url;
  }

  /** Who the server has proven to be when it named its lanes. */
  get identity(): Identity | undefined {
    return this.#identity;
  }

  /** How many lanes it has; undefined for a server without lanes. */
  get count(): number | undefined {
    return this.#count;
  }

  /** Where the calls of a key go, or those for a lane by its number; undefined while that lane has no engine. */
  urlOf(keyOrNumber: string | number): string | undefined {
    if (this.#count === undefined) return this.#lanes?.[0]?.url;
    const number = typeof keyOrNumber === "number" ? keyOrNumber : laneOfKey(keyOrNumber, this.#count);
    return this.lanes.find((lane) => lane.number === number)?.url;
  }

  close(): void {
    this.#isClosed = true;
    this.#peer.close();
    this.#endPause();
  }

  /** A server without lanes is reached where it was asked. */
  get #itself(): FoundLane {
    return { server: this, number: 0, url: this.#peer.url, incarnation: this.#meant };
  }

  async #follow(): Promise<void> {
    for (let attempt = 0; !this.#isClosed; ) {
      try {
        for await (const list of this.#client.watch()) {
          await this.#onList(list);
          attempt = 0;
        }
      } catch (error) {
        if (this.#isClosed) return;
        if (error instanceof RpcError && error.code === "unimplemented") {
          this.#setLanes([this.#itself], undefined);
          await this.#untilLost();
          continue;
        }
        this.#error = error;
        this.#listener.onError(this, error);
      }
      // It drains, or was lost. Its last list holds until a server at its address sends another one.
      await this.#pause(attempt++);
    }
  }

  async #onList({ urls, lanes }: ListedLanes): Promise<void> {
    if (lanes.length === 0) return this.#setLanes([this.#itself], undefined);
    const index = await indexOf(this.#peer.url, urls);
    if (this.#isClosed) return;
    const host = hostOf(this.#peer.url);
    // A certificate is for the name by which the server was called.
    const isNamed = isIP(host) === 0 && this.#peer.identity?.kind === "certificate";
    const found = lanes.flatMap(({ urls, incarnation }, number): FoundLane[] => {
      const url = urls[index];
      if (url === undefined || incarnation === 0n) return [];
      // A lane that listens on every interface is reached at the host of its dispatcher.
      const isElsewhere = host === "" || !(isNamed || isWildcard(hostOf(url)));
      return [{ server: this, number, url: isElsewhere ? url : atHost(url, host), incarnation }];
    });
    const { incarnation } = this.#peer;
    // Another engine at the address does not know the former one's lanes.
    if (incarnation === this.#namedBy) {
      const living = new Set(found.map((lane) => lane.incarnation));
      for (const lane of this.lanes)
        if (!living.has(lane.incarnation)) this.#listener.onGone(lane.url, lane.incarnation);
    }
    this.#namedBy = incarnation;
    this.#setLanes(found, lanes.length);
  }

  #setLanes(lanes: readonly FoundLane[], count: number | undefined): void {
    this.#identity = this.#peer.identity ?? this.#identity;
    const before = new Map(this.lanes.map(({ url, incarnation }) => [url, incarnation]));
    const isSame = ({ url, incarnation }: FoundLane) => (before.get(url) ?? incarnation) === incarnation;
    this.#error = undefined;
    this.#count = count;
    // Another engine at the same URL is another backend: it is connected to at once, and has no history.
    const kept = lanes.filter(isSame);
    if (kept.length < lanes.length) {
      this.#lanes = kept;
      this.#listener.onLanes(this);
    }
    this.#lanes = lanes;
    this.#listener.onLanes(this);
  }

  #untilLost(): Promise<void> {
    return new Promise((resolve) => {
      const done = () => {
        for (const off of offs) off();
        resolve();
      };
      const offs = [this.#peer.on("lost", done), this.#peer.on("closed", done)];
      if (this.#peer.incarnation === undefined) done();
    });
  }

  /** With full jitter: clients that lost one server at the same moment must not return at the same moment. */
  #pause(attempt: number): Promise<void> {
    const { baseDelayMs, maxDelayMs } = this.#pauses;
    const boundMs = Math.min(Math.max(baseDelayMs, maxDelayMs), baseDelayMs * 2 ** attempt);
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, Math.random() * boundMs).unref();
      this.#endPause = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }
}

/**
 * The index of the dispatcher's address that a client has reached by `url`: lanes listen in the same order. The
 * addresses of the host decide between URLs that differ only in the host.
 */
async function indexOf(url: string, urls: readonly string[]): Promise<number> {
  const exact = urls.indexOf(url);
  if (exact >= 0) return exact;
  const alike = [...urls.keys()].filter((index) => isAlike(urls[index] as string, url));
  if (alike.length <= 1) return alike[0] ?? -1;
  const addresses = await lookup(hostOf(url), { all: true }).catch(() => []);
  const at = alike.find((index) =>
    addresses.some(({ address }) => address === hostOf(urls[index] as string)),
  );
  return at ?? (alike[0] as number);
}

const isAlike = (one: string, other: string): boolean =>
  schemeOf(one) === schemeOf(other) && portOf(one) === portOf(other);
