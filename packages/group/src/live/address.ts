import { isIP } from "node:net";

export interface SocketAddress {
  readonly ip: string;
  readonly port: number;
  readonly family: 4 | 6;
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

/** Whether a detector at `own` can send to one at `other`. */
export function canReach(own: string, other: string): boolean {
  try {
    return parseAddress(own).family === parseAddress(other).family;
  } catch {
    return false;
  }
}
