import { chosenSource } from "./choose-rail.ts";
import { localAddressTowards, numericHost } from "./host.ts";
import { hasHosts, isNodeScheme, parseUrl, type Scheme } from "./url.ts";
import type { VerbsChoice } from "./verbs-choice.ts";

/** Where a peer is, looked up: names have become numbers, and it is known which of our addresses the way leaves from. */
export interface Target {
  readonly scheme: Scheme;
  /** tcp and verbs: numeric; other fabrics: the node; else "". */
  readonly host: string;
  readonly port: number;
  /** The name over shm and mem; over other fabrics the raw address, if that is what is known. */
  readonly name: string;
  /** tcp and verbs: our own numeric address on the way there; else "". */
  readonly from: string;
}

/** Looks a URL up; `choice` bounds the devices that verbs may leave from. Throws a TypeError for one that cannot be connected to, RpcError `unavailable` for an unknown host or no route. */
export async function locate(url: string, choice?: VerbsChoice): Promise<Target> {
  const { scheme, host, port, name } = parseUrl(url);
  if (isNodeScheme(scheme)) {
    if (host === "" && name === "")
      throw new TypeError(`url "${url}": any node can be listened on, not connected to`);
    return { scheme, host, port, name, from: "" };
  }
  if (!hasHosts(scheme)) return { scheme, host: "", port: 0, name, from: "" };
  if (port === 0) throw new TypeError(`url "${url}": port 0 can be listened on, not connected to`);
  if (host === "*") throw new TypeError(`url "${url}": every device can be listened on, not connected to`);
  const numeric = await numericHost(host);
  const routed = await localAddressTowards(numeric, port);
  const from =
    scheme === "verbs" && choice !== undefined ? chosenSource(url, numeric, routed, choice) : routed;
  return { scheme, host: numeric, port, name, from };
}
