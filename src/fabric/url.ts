import { isIP } from "node:net";

/** The providers a URL can name. */
export type Scheme = "mem" | "shm" | "tcp";

/** Where an engine listens or a peer is found, taken apart. */
export interface FabricUrl {
  readonly scheme: Scheme;
  /** tcp: a numeric address or a host name, without brackets; else "". */
  readonly host: string;
  /** tcp: 0 … 65535; else 0. */
  readonly port: number;
  /** shm and mem: the name; else "". */
  readonly name: string;
}

const namePattern = /^[A-Za-z0-9._-]{1,64}$/;
const hostPattern =
  /^(?=.{1,253}$)[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?)*\.?$/;

/**
 * Reads `tcp://host:port` (IPv6 in brackets; a port is required, 0 lets the system pick when listening), `shm://name` or
 * `mem://name`. Throws a TypeError that names the part and the rule.
 */
export function parseUrl(url: string): FabricUrl {
  if (typeof url !== "string") throw new TypeError(`url must be a string, got ${typeof url}`);
  const split = url.indexOf("://");
  const scheme = split < 0 ? "" : url.slice(0, split);
  const rest = url.slice(split + 3);
  switch (scheme) {
    case "mem":
    case "shm":
      if (!namePattern.test(rest)) {
        throw new TypeError(`url "${url}": a name has 1 to 64 characters of A-Z a-z 0-9 . _ -`);
      }
      return { scheme, host: "", port: 0, name: rest };
    case "tcp":
      return parseTcp(url, rest);
    default:
      throw new TypeError(`url "${url}": expected tcp://host:port, shm://name or mem://name`);
  }
}

function parseTcp(url: string, rest: string): FabricUrl {
  const match = /^(?:\[([^\]]*)\]|([^:[\]]*)):(\d{1,5})$/.exec(rest);
  if (match === null) throw new TypeError(`url "${url}": expected tcp://host:port, an IPv6 host in brackets`);
  const port = Number(match[3]);
  if (port > 65_535) throw new TypeError(`url "${url}": port ${port} is above 65535`);
  if (match[1] !== undefined) {
    if (isIP(match[1]) !== 6) throw new TypeError(`url "${url}": [${match[1]}] is no IPv6 address`);
    return { scheme: "tcp", host: match[1], port, name: "" };
  }
  const host = match[2] as string;
  if (isIP(host) !== 4 && !hostPattern.test(host))
    throw new TypeError(`url "${url}": "${host}" is no host name`);
  return { scheme: "tcp", host, port, name: "" };
}

export function formatTcpUrl(host: string, port: number): string {
  return host.includes(":") ? `tcp://[${host}]:${port}` : `tcp://${host}:${port}`;
}
