import { isIP } from "node:net";

/** Schemes whose URLs name a host and a port, and whose raw addresses are socket addresses. */
export type HostScheme = "tcp" | "verbs";
/** Schemes that libfabric serves. */
export type NativeScheme = "shm" | HostScheme;
/** The providers a URL can name. */
export type Scheme = "mem" | NativeScheme;

/** Where an engine listens or a peer is found, taken apart. */
export interface FabricUrl {
  readonly scheme: Scheme;
  /** tcp and verbs: a numeric address or a host name, without brackets; else "". */
  readonly host: string;
  /** tcp and verbs: 0 … 65535; else 0. */
  readonly port: number;
  /** shm and mem: the name; else "". */
  readonly name: string;
}

const namePattern = /^[A-Za-z0-9._-]{1,64}$/;
const hostPattern =
  /^(?=.{1,253}$)[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?)*\.?$/;

/**
 * Reads `tcp://host:port` or `verbs://host:port` (IPv6 in brackets; a port is required, 0 lets the system pick when listening),
 * `shm://name` or `mem://name`. Throws a TypeError that names the part and the rule.
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
    case "verbs":
      return parseHostAndPort(url, scheme, rest);
    default:
      throw new TypeError(
        `url "${url}": expected tcp://host:port, verbs://host:port, shm://name or mem://name`,
      );
  }
}

function parseHostAndPort(url: string, scheme: HostScheme, rest: string): FabricUrl {
  const match = /^(?:\[([^\]]*)\]|([^:[\]]*)):(\d{1,5})$/.exec(rest);
  if (match === null)
    throw new TypeError(`url "${url}": expected ${scheme}://host:port, an IPv6 host in brackets`);
  const port = Number(match[3]);
  if (port > 65_535) throw new TypeError(`url "${url}": port ${port} is above 65535`);
  if (match[1] !== undefined) {
    if (isIP(match[1]) !== 6) throw new TypeError(`url "${url}": [${match[1]}] is no IPv6 address`);
    return { scheme, host: match[1], port, name: "" };
  }
  const host = match[2] as string;
  if (isIP(host) !== 4 && !hostPattern.test(host))
    throw new TypeError(`url "${url}": "${host}" is no host name`);
  return { scheme, host, port, name: "" };
}

export function formatHostUrl(scheme: HostScheme, host: string, port: number): string {
  return `${scheme}://${host.includes(":") ? `[${host}]` : host}:${port}`;
}

/** Whether URLs of the scheme name a host and a port. */
export function hasHosts(scheme: Scheme): scheme is HostScheme {
  return scheme === "tcp" || scheme === "verbs";
}
