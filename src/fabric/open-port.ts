import { isIP } from "node:net";
import type { AuthKeys } from "./auth-keys.ts";
import { isWildcard } from "./host.ts";
import { MemPort } from "./mem-port.ts";
import { NativePort } from "./native-port.ts";
import type { Port } from "./port.ts";
import type { PortLayout } from "./port-layout.ts";
import type { Target } from "./target.ts";
import { hasHosts, parseUrl } from "./url.ts";

/** Opens the port that listens at `url`. Throws a TypeError for a bad URL, RpcError when it cannot be had. */
export async function openListeningPort(url: string, layout: PortLayout, keys?: AuthKeys): Promise<Port> {
  const parsed = parseUrl(url);
  return parsed.scheme === "mem" ? new MemPort(parsed, layout) : NativePort.open(parsed, true, layout, keys);
}

/**
 * Opens a port to connect from. Over tcp and verbs an endpoint without connections cannot be had, every one also accepts; so it is bound
 * to the one local address the way to `target` leaves from, and never to all interfaces.
 */
export async function openConnectingPort(target: Target, layout: PortLayout, keys?: AuthKeys): Promise<Port> {
  const { scheme, from } = target;
  const url = { scheme, host: from, port: 0, name: "" };
  return scheme === "mem" ? new MemPort(url, layout) : NativePort.open(url, false, layout, keys);
}

/** Whether `port` can reach `target` from where it is bound. */
export function canReach(port: Port, target: Target): boolean {
  if (port.scheme !== target.scheme) return false;
  if (!hasHosts(port.scheme)) return true;
  const bound = parseUrl(port.url).host;
  return bound === target.from || (isWildcard(bound) && isIP(bound) === isIP(target.from));
}
