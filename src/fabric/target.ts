import { localAddressTowards, numericHost } from "./host.ts";
import { hasHosts, parseUrl, type Scheme } from "./url.ts";

/** Where a peer is, looked up: names have become numbers, and it is known which of our addresses the way leaves from. */
export interface Target {
  readonly scheme: Scheme;
  /** tcp and verbs: numeric; else "". */
  readonly host: string;
  readonly port: number;
  readonly name: string;
  /** tcp and verbs: our own numeric address on the way there; else "". */
  readonly from: string;
}

/** Looks a URL up. Throws a TypeError for one that cannot be connected to, RpcError `unavailable` for an unknown host or no route. */
export async function locate(url: string): Promise<Target> {
  const { scheme, host, port, name } = parseUrl(url);
  if (!hasHosts(scheme)) return { scheme, host: "", port: 0, name, from: "" };
  if (port === 0) throw new TypeError(`url "${url}": port 0 can be listened on, not connected to`);
  const numeric = await numericHost(host);
  return { scheme, host: numeric, port, name, from: await localAddressTowards(numeric, port) };
}
