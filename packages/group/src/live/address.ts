import { isIP } from "node:net";

export interface SocketAddress {
  readonly ip: string;
  readonly port: number;
  readonly family: 4 | 6;
}

/** What carries the messages of a detector: its address says it. */
export type TransportName = "udp" | "fabric";

/** URLs are those of a fabric, all else is an address for datagrams. */
export function transportOf(address: string): TransportName {
  return address.includes("://") ? "fabric" : "udp";
}

/**
 * Reads `IP:PORT` or `[IPv6]:PORT`. Names are refused: to resolve one for every message takes longer than the message.
 * @throws TypeError for anything else
 */
export function parseAddress(text: string): SocketAddress {
  const [, bracketed, plain, digits] = /^(?:\[([^\]]+)\]|([^:]+)):(\d{1,5})$/.exec(text) ?? [];
  const ip = bracketed ?? plain ?? "";
  const port = Number(digits);
  const family = isIP(ip);
  const isWritten = family === (bracketed === undefined ? 4 : 6);
  if (isWritten && port >= 1 && port <= 65_535) return { ip, port, family: family as 4 | 6 };
  throw new TypeError(
    `failure detector: "${text}" is no address; write IP:PORT or [IPv6]:PORT, with a port from 1`,
  );
}

/** A wildcard host, or a port that is chosen later. */
const listeningOnly = /:\/\/(0\.0\.0\.0|\[::\]|\*)(:|$)|^(tcp|verbs):.*:0$/;

/**
 * The engine judges the rest of a URL.
 * @throws TypeError for a URL at which no other process reaches a detector
 */
export function assertReachable(url: string): void {
  if (url.startsWith("mem:"))
    throw new TypeError(`failure detector: "${url}" reaches one thread only, and a detector has its own`);
  if (listeningOnly.test(url))
    throw new TypeError(
      `failure detector: "${url}" is for listening; name a host and a port that others can reach`,
    );
}

/** Whether a detector at `own` can send to one at `other`. */
export function canReach(own: string, other: string): boolean {
  if (transportOf(own) !== transportOf(other)) return false;
  try {
    assertAddress(other);
    return transportOf(own) === "fabric" || parseAddress(own).family === parseAddress(other).family;
  } catch {
    return false;
  }
}

/** @throws TypeError for an address at which no other process reaches a detector */
export function assertAddress(address: string): void {
  if (transportOf(address) === "udp") parseAddress(address);
  else assertReachable(address);
}
