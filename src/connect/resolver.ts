import { anything, callback, type FieldsOf, milliseconds, resolveOptions } from "../base/options/options.ts";
import { type Clock, systemClock } from "../base/time/clock.ts";
import { formatHostUrl, hasHosts, parseUrl } from "../fabric/libfabric/url.ts";
import type { Identity } from "../security/identity.ts";

/** Receives the results of a resolver. */
export interface ResolverListener {
  /** The complete list of URLs: once at the start, and again whenever it changes. */
  onUrls(urls: readonly string[]): void;
  /** A look-up failed. The last list stays valid. */
  onError(error: unknown): void;
  /**
   * The engine of that incarnation has certainly ended and no longer touches memory, for instance because a supervisor
   * has waited for its thread or process. Its session at that URL ends at once, and memory that was granted to it comes
   * back.
   */
  onGone(url: string, incarnation: bigint): void;
}

/** An engine that has answered at a URL of a resolver. */
export interface FoundEngine {
  readonly url: string;
  /** The incarnation of the engine: `engine.incarnation` there. */
  readonly incarnation: bigint;
  /** The identity that the engine has proven. Undefined for an engine without a proof. */
  readonly identity: Identity | undefined;
}

/**
 * Finds the backends of a balanced peer. Implement it to connect a discovery service.
 *
 * @example
 * const registry: Resolver = {
 *   name: "registry",
 *   start(listener) {
 *     const look = async () => {
 *       const answer = await fetch("http://registry.internal/files");
 *       listener.onUrls((await answer.json()) as string[]);
 *     };
 *     const timer = setInterval(() => look().catch((error) => listener.onError(error)), 10_000).unref();
 *     look().catch((error) => listener.onError(error));
 *     return () => clearInterval(timer);
 *   },
 * };
 * const storage = await engine.connect(registry);
 */
export interface Resolver {
  /** The name in messages and in `name` of the balanced peer. */
  readonly name: string;
  /**
   * Starts to call `listener`, possibly before `start` returns. The returned function stops it. It may be started
   * several times. Its timers must not keep the process alive.
   */
  start(listener: ResolverListener): () => void;
  /**
   * Called with each engine that has answered at one of the URLs, before it gets a call. An `RpcError` that it throws
   * refuses the engine: it is tried again as one that cannot be reached. `permission_denied` counts as the refusal
   * `other_identity`. Default: every engine is admitted.
   */
  admit?(engine: FoundEngine): void;
}

/**
 * A resolver with a fixed list of URLs. Duplicates count once. `engine.connect` with an array of URLs uses it.
 *
 * @example
 * const storage = await engine.connect(staticResolver(["tcp://10.0.0.1:7400", "tcp://10.0.0.2:7400"]));
 */
export function staticResolver(urls: readonly string[]): Resolver {
  const all = [...new Set(urls)];
  return {
    name: all.join(", "),
    start(listener) {
      listener.onUrls(all);
      return () => {};
    },
  };
}

/** The options of `dnsResolver`. */
export interface DnsResolverOptions {
  /**
   * The time between look-ups, in milliseconds, 1 to 2^31 - 1. The system's resolver does not report how long an
   * answer is valid. Default 30,000.
   */
  readonly everyMs?: number | undefined;
  /** Returns the numeric addresses of a host. Default: `dns.lookup`, which also reads the hosts file. */
  readonly lookUp?: ((host: string) => Promise<readonly string[]>) | undefined;
  /** The clock for the time between look-ups. Default: the system's. */
  readonly clock?: Clock | undefined;
}

/**
 * A resolver that makes one backend of each address of a host name. `tcp://files.internal:7400` with three A records
 * gives three backends. It looks the name up at the start and every `everyMs`. An answer with the same addresses in
 * another order is no change. An answer without addresses counts as an error.
 *
 * @example
 * const storage = await engine.connect(dnsResolver("tcp://files.internal:7400", { everyMs: 10_000 }));
 *
 * @throws TypeError for a URL without a host, or an unknown option. RangeError for a time out of bounds.
 */
export function dnsResolver(url: string, options: DnsResolverOptions = {}): Resolver {
  const { everyMs, lookUp, clock } = resolveOptions("dnsResolver", options, dnsFields);
  const { scheme, host, port } = parseUrl(url);
  if (!hasHosts(scheme))
    throw new TypeError(`dnsResolver: ${url} has no host to look up, only tcp, verbs and net URLs have`);
  return {
    name: url,
    start(listener) {
      let stopped = false;
      let cancel = () => {};
      let last = "";
      const tell = (addresses: readonly string[]) => {
        if (addresses.length === 0) throw new Error(`${host} has no address`);
        const urls = [...new Set(addresses)].sort().map((address) => formatHostUrl(scheme, address, port));
        if (urls.join() === last) return;
        last = urls.join();
        listener.onUrls(urls);
      };
      const look = async (): Promise<void> => {
        try {
          const addresses = await lookUp(host);
          if (!stopped) tell(addresses);
        } catch (error) {
          if (!stopped) listener.onError(error);
        }
        if (!stopped) cancel = clock.timer(everyMs, () => void look(), true);
      };
      void look();
      return () => {
        stopped = true;
        cancel();
      };
    },
  };
}

const dnsFields = {
  everyMs: milliseconds({ low: 1, fallback: 30_000 }),
  lookUp: callback(lookUpAll),
  clock: { ...anything<Clock>(), fallback: systemClock },
} satisfies FieldsOf<DnsResolverOptions>;

async function lookUpAll(host: string): Promise<readonly string[]> {
  const { lookup } = await import("node:dns/promises");
  return (await lookup(host, { all: true })).map(({ address }) => address);
}
