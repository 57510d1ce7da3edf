import { setTimeout as pause } from "node:timers/promises";
import { type BalanceOptions, integer } from "cinnabar/options";
import {
  type AnyService,
  type BalancedPeer,
  type Client,
  type ClientOptions,
  type Engine,
  type Resolver,
  type RpcError,
  staticResolver,
} from "cinnabar/standard";
import { keyOfNumber, LanesResolver } from "./lanes-resolver.ts";
import { mostLanes } from "./lanes-service.ts";

/**
 * The options of `connectLanes` and `lazyLanes`: those of `engine.connect` for several URLs. The backends are the lanes.
 * `policy` picks the lane of a call without a key. With `keyOf` a call is pinned: calls with the same key go to the lane
 * with the same number, from every client.
 *
 * @example
 * const storage = await connectLanes(engine, "tcp://10.0.0.7:7400", {
 *   keyOf: ({ input }) => (input as { user?: string }).user,
 * });
 */
export interface LanesPeerOptions extends Omit<BalanceOptions, "pin"> {
  /**
   * The incarnation of the wanted server: `incarnation` of the result of `openLanes`. Another server at the same URL
   * gets no call, nor do its lanes. Default: any server.
   */
  readonly incarnation?: bigint | undefined;
}

/** The options of a client of lanes. */
export interface LanesClientOptions extends Omit<ClientOptions, "key"> {
  /**
   * The number of the lane that serves the calls, from 0. Calls fail with `failed_precondition` when the server has no lane
   * of this number. A server without lanes serves them as all others. Default: any lane.
   */
  readonly lane?: number | undefined;
}

/** One lane as a client sees it: a backend, with its number and the URL of its server. */
export type ReachedLane = BalancedPeer["backends"][number] & {
  readonly lane: number;
  readonly server: string;
};

/**
 * The lanes of one server or of several, made by `connectLanes` or `lazyLanes`. Calls are spread over the lanes. It
 * follows what the servers say of their lanes: lost ones are connected to again, and replaced ones take their places.
 */
export class LanesPeer implements AsyncDisposable {
  readonly #balanced: BalancedPeer;
  readonly #resolver: LanesResolver;

  /** @internal Made by `connectLanes` and `lazyLanes`. */
  constructor(balanced: BalancedPeer, resolver: LanesResolver) {
    this.#balanced = balanced;
    this.#resolver = resolver;
  }

  /** For logs. */
  get name(): string {
    return this.#balanced.name;
  }

  /** The lanes that have an engine now, in the order of the servers and of their numbers. */
  get lanes(): ReachedLane[] {
    return this.#balanced.backends.flatMap((backend) => {
      const found = this.#resolver.laneAt(backend.url);
      return found === undefined ? [] : [{ ...backend, lane: found.number, server: found.server.url }];
    });
  }

  /** The same as backends, as a balanced peer has them. */
  get backends(): BalancedPeer["backends"] {
    return this.#balanced.backends;
  }

  /**
   * Makes a typed client with calls to the lanes. A client holds no resources and needs no closing.
   *
   * @throws TypeError or RangeError for bad options, and for anything but a service.
   */
  client<S extends AnyService>(service: S, { lane, ...options }: LanesClientOptions = {}): Client<S> {
    if (lane === undefined) return this.#balanced.client(service, options);
    const number = integer(0, mostLanes - 1).resolve("client", "lane", lane);
    return this.#balanced.client(service, { ...options, key: keyOfNumber(number) });
  }

  /**
   * Closes all connections. Open calls fail with `reason`, and so do calls that are made later. Default: `unavailable`.
   * Safe to call twice; the first reason counts.
   */
  close(reason?: RpcError): void {
    this.#balanced.close(reason);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
  }
}

/**
 * Connects to a server with lanes, or to several that serve the same: all lanes of all servers share the calls. A server
 * without lanes takes calls itself. Resolves when each lane has been tried and one is connected.
 *
 * @example
 * const sums = (await connectLanes(engine, "shm://sums")).client(Sums);
 *
 * @throws TypeError or RangeError for bad options or URLs. RpcError: the server's refusal, or `unavailable` when no lane
 * can be reached, unless `reconnect.whileLost` is "wait".
 */
export async function connectLanes(
  engine: Engine,
  where: string | readonly string[] | Resolver,
  options: LanesPeerOptions = {},
): Promise<LanesPeer> {
  const servers = typeof where === "object" && "start" in where ? where : staticResolver([where].flat());
  const [resolver, balance] = resolverOf(engine, servers, false, options);
  const peer = new LanesPeer(await engine.connect(resolver, balance), resolver);
  const untried = new Set(peer.lanes.map(({ url }) => url));
  // Each try ends by itself, after the time limit of connecting at the latest.
  while (untried.size > 0) {
    const trying = new Set(peer.backends.flatMap(({ url, state }) => (state === "connecting" ? [url] : [])));
    for (const url of untried) if (!trying.has(url)) untried.delete(url);
    if (untried.size > 0) await pause(lookMs);
  }
  return peer;
}

/** The time between looks whether lanes have been tried. */
const lookMs = 2;

/**
 * The lanes of one server, without waiting for it: the first calls wait until the server has named its lanes. Several
 * URLs are those of one server, as for shared memory and for the network: the first that answers is used.
 *
 * @throws TypeError or RangeError for malformed URLs or bad options. RpcError `unavailable` when the engine is closed.
 */
export function lazyLanes(
  engine: Engine,
  urls: string | readonly string[],
  options: LanesPeerOptions = {},
): LanesPeer {
  const [resolver, balance] = resolverOf(engine, staticResolver([urls].flat()), true, options);
  return new LanesPeer(engine.lazyPeer(resolver, balance), resolver);
}

function resolverOf(
  engine: Engine,
  servers: Resolver,
  alternatives: boolean,
  { incarnation, ...options }: LanesPeerOptions,
): [LanesResolver, BalanceOptions] {
  const { timeoutMs, name, reconnect } = options;
  const terms = {
    ...(timeoutMs !== undefined && { timeoutMs }),
    ...(name !== undefined && { name }),
    ...(incarnation !== undefined && { incarnation }),
  };
  const { baseDelayMs = 50, maxDelayMs = 2000 } = reconnect ?? {};
  const resolver = new LanesResolver(engine, servers, alternatives, terms, { baseDelayMs, maxDelayMs });
  return [resolver, { ...options, pin: (key) => resolver.pin(key) }];
}
