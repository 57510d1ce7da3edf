import { isWildcard, localAddressTowards, numericHosts } from "./host.ts";
import { hasHosts, isNodeScheme, isSocketScheme, parseUrl, type Scheme } from "./libfabric/url.ts";
import { chosenSource } from "./rdma/choose-rail.ts";
import type { VerbsChoice } from "./rdma/verbs-choice.ts";

/** The resolved address of a peer, with the local address from which the route leaves. */
export interface Target {
  readonly scheme: Scheme;
  /** tcp, verbs and net: a numeric address. Other fabrics: the node. Otherwise "". */
  readonly host: string;
  readonly port: number;
  /** shm, mem and net+pipe: the name. net+unix: the path. Other fabrics: the raw address, if the URL has one. */
  readonly name: string;
  /** tcp and verbs: the local numeric address of the route. Otherwise "". */
  readonly from: string;
}

/**
 * Resolves a URL to the addresses of its host, at least one, in the order in which to try them. `choice` restricts the
 * devices from which verbs may leave.
 * @throws TypeError for a URL that cannot be connected to. RpcError `unavailable` for an unknown host or a missing
 * route to each address.
 */
export async function locateAll(url: string, choice?: VerbsChoice): Promise<readonly Target[]> {
  const { scheme, host, port, name } = parseUrl(url);
  if (isNodeScheme(scheme)) {
    if (host === "" && name === "")
      throw new TypeError(`url "${url}": any node can be listened on, not connected to`);
    return [{ scheme, host, port, name, from: "" }];
  }
  if (!hasHosts(scheme)) return [{ scheme, host: "", port: 0, name, from: "" }];
  if (port === 0) throw new TypeError(`url "${url}": port 0 can be listened on, not connected to`);
  if (host === "*") throw new TypeError(`url "${url}": every device can be listened on, not connected to`);
  if (isWildcard(host))
    throw new TypeError(
      `url "${url}": ${host} can be listened on, not connected to; connect to an address of the server, such as 127.0.0.1`,
    );
  const addresses = await numericHosts(host);
  if (isSocketScheme(scheme))
    return addresses.map((address) => ({ scheme, host: address, port, name, from: "" }));
  const routed = await Promise.allSettled(
    addresses.map(async (address): Promise<Target> => {
      const source = await localAddressTowards(address, port);
      const from =
        scheme === "verbs" && choice !== undefined ? chosenSource(url, address, source, choice) : source;
      return { scheme, host: address, port, name, from };
    }),
  );
  const targets = routed.flatMap((each) => (each.status === "fulfilled" ? [each.value] : []));
  if (targets.length === 0) throw (routed[0] as PromiseRejectedResult).reason;
  return targets;
}

/** The first address of a URL. @throws as `locateAll`. */
export async function locate(url: string, choice?: VerbsChoice): Promise<Target> {
  return (await locateAll(url, choice))[0] as Target;
}
