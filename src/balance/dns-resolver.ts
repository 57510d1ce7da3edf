import { lookup } from "node:dns/promises";
import { type Clock, systemClock } from "../call/clock.ts";
import { assertOptions } from "../contract/check.ts";
import { formatHostUrl, hasHosts, parseUrl } from "../fabric/url.ts";
import type { Resolver } from "./resolver.ts";

export interface DnsResolverOptions {
  /** How often the name is looked up again, in milliseconds. Default 30,000. The system's resolver does not tell how long an answer holds. */
  readonly everyMs?: number;
  /** Numeric addresses of a host. Default: `dns.lookup`, as the system does it, hosts file included. */
  readonly lookUp?: (host: string) => Promise<readonly string[]>;
  /** Default: the system's. */
  readonly clock?: Clock;
}

/**
 * One URL for each address that a host name has: `tcp://files.internal:7400` with three A records is three peers. Looked up at the start and every `everyMs`; addresses come in one order, so
 * that a server's shuffling is no change. An answer without addresses counts as an error, since it more often is one than the truth.
 *
 * @throws TypeError for a URL without a host, or an unknown option; RangeError for a time out of bounds.
 */
export function dnsResolver(url: string, options: DnsResolverOptions = {}): Resolver {
  assertOptions("dnsResolver", options, ["everyMs", "lookUp", "clock"]);
  const { everyMs = 30_000, lookUp = lookUpAll, clock = systemClock } = options;
  const { scheme, host, port } = parseUrl(url);
  if (!hasHosts(scheme))
    throw new TypeError(`dnsResolver: ${url} has no host to look up, only tcp and verbs URLs have`);
  if (!(typeof everyMs === "number" && everyMs >= 1 && everyMs < 2 ** 31))
    throw new RangeError(`dnsResolver: everyMs must be a number from 1 to ${2 ** 31 - 1}, it is ${everyMs}`);
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

async function lookUpAll(host: string): Promise<readonly string[]> {
  return (await lookup(host, { all: true })).map(({ address }) => address);
}
