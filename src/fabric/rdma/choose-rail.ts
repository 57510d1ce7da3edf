import { isIP } from "node:net";
import { networkInterfaces } from "node:os";
import { RpcError } from "../../base/errors/rpc-error.ts";
import { requireLibfabric } from "../libfabric/libfabric.ts";
import { formatHostUrl, parseUrl } from "../libfabric/url.ts";
import { rdmaDevices } from "./devices.ts";
import { fits, listRails, oneForEachPort, type Rail, railsOf } from "./rails.ts";
import { isInSubnet, type VerbsChoice } from "./verbs-choice.ts";

/**
 * Hosts of a listening `verbs://` URL that stand for every device, and the IP version of the addresses that they stand
 * for.
 */
const wildcards: Readonly<Record<string, 4 | 6 | undefined>> = { "*": undefined, "0.0.0.0": 4, "::": 6 };

/**
 * The URLs that a URL to listen at stands for. For `verbs` the host may be a wildcard, an RDMA device or a network
 * interface. These become addresses of devices, one for each port. Any other URL stands for itself.
 *
 * @throws RpcError `invalid_argument` where no device fits, `unimplemented` where the machine has no device. Both
 * list the devices.
 */
export function listeningUrls(url: string, choice: VerbsChoice | undefined): string[] {
  const { scheme, host, port } = parseUrl(url);
  if (scheme !== "verbs") return [url];
  const isAddress = isIP(host) !== 0 && !(host in wildcards);
  if (isAddress && choice === undefined) return [url];
  const rails = presentRails();
  const named = railsAt(rails, host);
  // The name of a host, which may be this one's.
  if (named.length === 0 && !isAddress && !(host in wildcards)) return [url];
  const fitting = named.filter((rail) => choice === undefined || fits(rail, choice, rails));
  if (fitting.length === 0) throw noneFits(url, choice, rails);
  return oneForEachPort(fitting).map(({ address }) => formatHostUrl("verbs", address, port));
}

/**
 * The local address towards a peer, among those that fit: the one that the system would take, else one in the peer's
 * network, else the first.
 */
export function chosenSource(url: string, host: string, routed: string, choice: VerbsChoice): string {
  const rails = presentRails();
  const fitting = rails.filter(
    (rail) => fits(rail, choice, rails) && isIP(rail.address) === isIP(host.replace(/%.*/, "")),
  );
  const [first] = fitting;
  if (first === undefined) throw noneFits(url, choice, rails);
  const near = Object.values(networkInterfaces()).flatMap((all) => all ?? []);
  const isNear = ({ address }: Rail) =>
    near.some((own) => own.address === address && own.cidr !== null && isInSubnet(host, own.cidr));
  return (fitting.find(({ address }) => address === routed) ?? fitting.find(isNear) ?? first).address;
}

function railsAt(rails: readonly Rail[], host: string): Rail[] {
  if (host in wildcards) {
    const version = wildcards[host];
    return rails.filter(({ address }) => version === undefined || isIP(address) === version);
  }
  const byDevice = rails.filter(({ device }) => device === host);
  if (byDevice.length > 0) return byDevice;
  const byInterface = rails.filter((rail) => rail.interface === host);
  return byInterface.length > 0 ? byInterface : rails.filter(({ address }) => address === host);
}

function presentRails(): Rail[] {
  const addon = requireLibfabric();
  const rails = railsOf(addon.domains(), rdmaDevices(), networkInterfaces());
  if (rails.length > 0) return rails;
  const reason = addon.providers().find(({ scheme }) => scheme === "verbs")?.reason ?? "";
  throw new RpcError({
    code: "unimplemented",
    message: reason === "" ? "no RDMA device has an address" : reason,
  });
}

function noneFits(url: string, choice: VerbsChoice | undefined, rails: readonly Rail[]): RpcError {
  const wanted = Object.entries(choice ?? {}).map(([field, value]) => `${field} ${value}`);
  const what = wanted.length === 0 ? "" : ` with ${wanted.join(", ")}`;
  return new RpcError({
    code: "invalid_argument",
    message: `${url}: no RDMA device${what} matches; the devices are ${listRails(rails)}`,
  });
}
