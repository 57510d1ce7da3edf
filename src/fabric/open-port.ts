import { isIP } from "node:net";
import { isWildcard } from "./host.ts";
import { hasHosts, isSocketScheme, parseUrl } from "./libfabric/url.ts";
import { MemPort } from "./mem-port.ts";
import { NativePort } from "./native-port.ts";
import { NetPort } from "./net/net-port.ts";
import type { Port, PortLayout } from "./port.ts";
import type { Target } from "./target.ts";

/**
 * Opens a port that listens at `url`.
 * @throws TypeError for a bad URL. RpcError when the port cannot be opened.
 */
export async function openListeningPort(url: string, layout: PortLayout): Promise<Port> {
  const parsed = parseUrl(url);
  if (parsed.scheme === "mem") return new MemPort(parsed, layout);
  return isSocketScheme(parsed.scheme)
    ? NetPort.listen(parsed, layout)
    : NativePort.open(parsed, true, layout);
}

/**
 * Opens a port to connect from. Over tcp and verbs every endpoint also accepts connections. The port is therefore bound
 * to the one local address from which the route to `target` leaves, and never to all interfaces.
 */
export async function openConnectingPort(target: Target, layout: PortLayout): Promise<Port> {
  const { scheme, from } = target;
  const url = { scheme, host: from, port: 0, name: "" };
  if (scheme === "mem") return new MemPort(url, layout);
  return isSocketScheme(scheme) ? NetPort.connecting(scheme, layout) : NativePort.open(url, false, layout);
}

/** Whether `port` can reach `target` from the address that it is bound to. */
export function canReach(port: Port, target: Target): boolean {
  if (port.scheme !== target.scheme) return false;
  // The system chooses the local address of a socket.
  if (!hasHosts(port.scheme) || isSocketScheme(port.scheme)) return true;
  const bound = parseUrl(port.url).host;
  return bound === target.from || (isWildcard(bound) && isIP(bound) === isIP(target.from));
}
