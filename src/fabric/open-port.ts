import { isWildcard, localAddressTowards, numericHost } from "./host.ts";
import { MemPort } from "./mem-port.ts";
import { NativePort } from "./native-port.ts";
import type { Port } from "./port.ts";
import type { PortLayout } from "./port-layout.ts";
import { parseUrl } from "./url.ts";

/** Opens the port that listens at `url`. Throws a TypeError for a bad URL, RpcError when it cannot be had. */
export async function openListeningPort(url: string, layout: PortLayout): Promise<Port> {
  const parsed = parseUrl(url);
  return parsed.scheme === "mem" ? new MemPort(parsed, layout) : NativePort.open(parsed, true, layout);
}

/**
 * Opens a port to connect from. Over tcp an endpoint without connections cannot be had, every one also accepts; so it is bound
 * to the one local address the way to `url` leaves from, and never to all interfaces.
 */
export async function openConnectingPort(url: string, layout: PortLayout): Promise<Port> {
  const { scheme, host, port } = parseUrl(url);
  if (scheme === "mem") return new MemPort({ scheme, host: "", port: 0, name: "" }, layout);
  const local = scheme === "tcp" ? await localAddressTowards(await numericHost(host), port) : "";
  return NativePort.open({ scheme, host: local, port: 0, name: "" }, false, layout);
}

/** Whether `port` can reach `url` from where it is bound. */
export async function canReach(port: Port, url: string): Promise<boolean> {
  const target = parseUrl(url);
  if (port.scheme !== target.scheme) return false;
  if (port.scheme !== "tcp") return true;
  const bound = parseUrl(port.url).host;
  return isWildcard(bound) || bound === (await localAddressTowards(await numericHost(target.host), target.port));
}
