import type { Engine, FoundEngine, Identity, Resolver, ResolverListener } from "cinnabar/standard";
import { RpcError } from "cinnabar/standard";
import { FollowedServer, type FoundLane, type PauseBounds, type ServerListener } from "./followed-server.ts";

/** How the servers of a resolver are reached. */
export interface ServerTerms {
  readonly timeoutMs?: number;
  readonly name?: string;
  readonly incarnation?: bigint;
}

/** The keys of clients that name their lane. No other key begins so. */
const numberKey = "\0lane ";

/** The key of the calls that go to the lane with this number. */
export function keyOfNumber(lane: number): string {
  return `${numberKey}${lane}`;
}

/**
 * The lanes of servers as the backends of a balanced peer. `servers` names the servers; each of its URLs is one server,
 * or, with `alternatives`, all are those of one.
 */
export class LanesResolver implements Resolver {
  readonly name: string;
  readonly #engine: Engine;
  readonly #servers: Resolver;
  readonly #alternatives: boolean;
  readonly #terms: ServerTerms;
  readonly #pauses: PauseBounds;
  readonly #followed = new Map<string, FollowedServer>();
  readonly #byUrl = new Map<string, FoundLane>();
  /** Whether any lane has been named. */
  #hasNamed = false;

  constructor(
    engine: Engine,
    servers: Resolver,
    alternatives: boolean,
    terms: ServerTerms,
    pauses: PauseBounds,
  ) {
    this.name = `the lanes of ${servers.name}`;
    this.#engine = engine;
    this.#servers = servers;
    this.#alternatives = alternatives;
    this.#terms = terms;
    this.#pauses = pauses;
  }

  /** The lanes that have an engine now, by their servers and numbers. */
  get lanes(): readonly FoundLane[] {
    return [...this.#followed.values()].flatMap(({ lanes }) => lanes);
  }

  laneAt(url: string): FoundLane | undefined {
    return this.#byUrl.get(url);
  }

  start(listener: ResolverListener): () => void {
    const told: ServerListener = {
      onLanes: () => this.#publish(listener),
      onError: (_, error) => {
        const servers = [...this.#followed.values()];
        if (servers.every((server) => !server.isKnown && server.error !== undefined)) listener.onError(error);
      },
      onGone: (url, incarnation) => listener.onGone(url, incarnation),
    };
    const stop = this.#servers.start({
      onUrls: (urls) => {
        this.#followThese(this.#alternatives ? [urls] : urls.map((url) => [url]), told);
        if (urls.length === 0 || this.#hasNamed) this.#publish(listener);
      },
      onError: (error) => listener.onError(error),
      onGone: () => {},
    });
    return () => {
      stop();
      for (const server of this.#followed.values()) server.close();
      this.#followed.clear();
      this.#byUrl.clear();
    };
  }

  /** A lane takes the calls that are meant for its server, so it must be what the server has named, and prove the same. */
  admit({ url, incarnation, identity }: FoundEngine): void {
    const lane = this.#byUrl.get(url);
    if (lane === undefined) return;
    if (lane.incarnation !== 0n && lane.incarnation !== incarnation)
      throw otherEngine(url, incarnation, lane);
    const { identity: own } = lane.server;
    if (principalOf(identity) !== principalOf(own)) throw otherIdentity(lane, identity);
  }

  /** Where the calls of a key may go. */
  pin(key: string): readonly string[] {
    const named = key.startsWith(numberKey) ? Number(key.slice(numberKey.length)) : undefined;
    const servers = [...this.#followed.values()].filter(({ isKnown }) => isKnown);
    if (named !== undefined) {
      const counts = servers.map(({ count = Number.POSITIVE_INFINITY }) => count);
      const most = Math.max(...counts);
      if (counts.length > 0 && named >= most) throw noLane(this.name, named, most);
    }
    return servers.flatMap((server) => server.urlOf(named ?? key) ?? []);
  }

  #followThese(servers: readonly (readonly string[])[], told: ServerListener): void {
    const wanted = new Map(servers.map((urls) => [urls.join(" "), urls]));
    for (const [key, server] of this.#followed) {
      if (wanted.has(key)) continue;
      server.close();
      this.#followed.delete(key);
    }
    for (const [key, urls] of wanted) {
      if (this.#followed.has(key)) continue;
      const peer = this.#engine.lazyPeer(urls, this.#terms);
      this.#followed.set(key, new FollowedServer(peer, this.#terms.incarnation, this.#pauses, told));
    }
  }

  /** While no lane has an engine, a client that connects waits: nothing is said until there is one. */
  #publish(listener: ResolverListener): void {
    const { lanes } = this;
    this.#byUrl.clear();
    for (const lane of lanes) this.#byUrl.set(lane.url, lane);
    this.#hasNamed ||= lanes.length > 0;
    if (this.#hasNamed || this.#followed.size === 0) listener.onUrls([...this.#byUrl.keys()]);
  }
}

/** Peers that prove nothing are all one. A process is its user. */
function principalOf(identity: Identity | undefined): string {
  if (identity === undefined) return "";
  if (identity.kind === "process") return `process ${identity.uid}`;
  return identity.kind === "local" ? "local" : `${identity.kind} ${identity.name}`;
}

function otherEngine(url: string, found: bigint, { incarnation }: FoundLane): RpcError {
  const [is, not] = [found, incarnation].map((number) => number.toString(16).padStart(16, "0"));
  return new RpcError({
    // A lane that has just been replaced may answer before it is announced.
    code: "unavailable",
    message: `another engine answers at ${url}: its incarnation is ${is} instead of ${not}`,
  });
}

function otherIdentity({ server }: FoundLane, identity: Identity | undefined): RpcError {
  return new RpcError({
    code: "permission_denied",
    message: `a lane of ${server.url} has another identity than it: "${principalOf(identity)}" instead of "${principalOf(server.identity)}"`,
  });
}

function noLane(name: string, number: number, count: number): RpcError {
  return new RpcError({
    code: "failed_precondition",
    message: `${name}: there is no lane ${number}, there are ${count}`,
    notExecuted: true,
  });
}
