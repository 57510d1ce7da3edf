import { isIP } from "node:net";

/** Schemes on Node's own sockets: TCP, Unix sockets, and Windows' named pipes. */
export type SocketScheme = "net" | "net+unix" | "net+pipe";
/** Schemes with a host and a port in their URLs. */
export type HostScheme = "tcp" | "verbs" | "net";
/** Schemes with addresses that only libfabric understands: their URLs name a node and a service, or a raw address. */
export type NodeScheme = "efa" | "cxi" | "opx" | "psm2" | "psm3" | "ucx";
/** Schemes that native code serves. */
export type NativeScheme = "shm" | "tcp" | "verbs" | NodeScheme;
const nodeSchemes: readonly NodeScheme[] = ["efa", "cxi", "opx", "psm2", "psm3", "ucx"];
/** The providers a URL can name. */
export type Scheme = "mem" | SocketScheme | NativeScheme;

/** Where an engine listens or a peer is found, taken apart. */
export interface FabricUrl {
  readonly scheme: Scheme;
  /**
   * tcp, verbs and net: a numeric address or a host name, without brackets, for verbs "*" too. Other fabrics: the node, ""
   * for any. Else "".
   */
  readonly host: string;
  /** tcp, verbs and net: 0 … 65535. Other fabrics: the service, 0 for none. Else 0. */
  readonly port: number;
  /**
   * shm, mem and net+pipe: the name. net+unix, and shm in the file system: the path. Other fabrics: the raw address in
   * hexadecimal digits, if the URL has one. Else "".
   */
  readonly name: string;
}

const namePattern = /^[A-Za-z0-9._-]{1,64}$/;
/** What fits into a socket address on every system (103 bytes) beside the names that a listener makes of the path. */
const mostPathBytes = 89;
const pathPattern = /^\/[A-Za-z0-9._/-]{1,63}$/;
const rawPattern = /^~((?:[0-9a-f]{2}){1,256})$/;
const nodePattern =
  /^(?:\[([0-9A-Fa-f:.%]{2,64}[A-Za-z0-9_.-]{0,16})\]|([A-Za-z0-9_.*-]{0,253})):(\d{1,10})$/;
const hostPattern =
  /^(?=.{1,253}$)[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?)*\.?$/;

/**
 * Reads `tcp://host:port`, `verbs://host:port` or `net://host:port` (IPv6 in brackets; a port is required, 0 lets the
 * system pick when listening; `verbs://*:port` listens at every device), `shm://name` (or `shm:///path`, a socket in
 * the file system), `mem://name`, `net+pipe://name` or `net+unix:///path`; for the other fabrics
 * `psm3://node:service` (what libfabric resolves; `*` for any node) or `psm3://~0a1b…`, a raw address. Throws a
 * TypeError that names the part and the rule.
 */
export function parseUrl(url: string): FabricUrl {
  if (typeof url !== "string") throw new TypeError(`url must be a string, got ${typeof url}`);
  const split = url.indexOf("://");
  if (/[\s,;]+[a-z+]+[0-9]?:\/\//.test(url))
    throw new TypeError(
      `url ${JSON.stringify(url)}: it has several addresses; pass them as an array of strings`,
    );
  const scheme = split < 0 ? "" : url.slice(0, split);
  const rest = url.slice(split + 3);
  switch (scheme) {
    case "shm":
      if (rest.startsWith("/") && !pathPattern.test(rest))
        throw new TypeError(`url "${url}": a path has at most 64 characters of A-Z a-z 0-9 . _ - /`);
      return { scheme, host: "", port: 0, name: rest.startsWith("/") ? rest : nameOf(url, rest) };
    case "net+unix":
      if (!rest.startsWith("/") || rest.includes("\0") || Buffer.byteLength(rest) > mostPathBytes)
        throw new TypeError(
          `url "${url}": expected net+unix:///path, a path of at most ${mostPathBytes} bytes`,
        );
      return { scheme, host: "", port: 0, name: rest };
    case "mem":
    case "net+pipe":
      return { scheme, host: "", port: 0, name: nameOf(url, rest) };
    case "tcp":
    case "verbs":
    case "net":
      return parseHostAndPort(url, scheme, rest);
    default:
      if (isNodeScheme(scheme)) return parseNodeAndService(url, scheme, rest);
      throw new TypeError(
        `url "${url}": expected tcp://host:port, verbs://host:port, net://host:port, net+unix:///path, shm://name or mem://name (or node:service of ${nodeSchemes.join(", ")})`,
      );
  }
}

function nameOf(url: string, name: string): string {
  if (namePattern.test(name)) return name;
  throw new TypeError(`url "${url}": a name has 1 to 64 characters of A-Z a-z 0-9 . _ -`);
}

function parseHostAndPort(url: string, scheme: HostScheme, rest: string): FabricUrl {
  const match = /^(?:\[([^\]]*)\]|([^:[\]]*)):(\d{1,5})$/.exec(rest);
  if (match === null) throw new TypeError(`url "${url}": ${hostAndPortFault(scheme, rest)}`);
  const port = Number(match[3]);
  if (port > 65_535) throw new TypeError(`url "${url}": port ${port} is above 65535`);
  if (match[1] !== undefined) {
    if (isIP(match[1]) !== 6) throw new TypeError(`url "${url}": [${match[1]}] is no IPv6 address`);
    return { scheme, host: match[1], port, name: "" };
  }
  const host = match[2] as string;
  if (scheme === "verbs" && host === "*") return { scheme, host, port, name: "" };
  if (isIP(host) !== 4 && !hostPattern.test(host))
    throw new TypeError(`url "${url}": "${host}" is no host name`);
  return { scheme, host, port, name: "" };
}

function hostAndPortFault(scheme: HostScheme, rest: string): string {
  const isOnlyHost = /^\[[^\]]*\]$/.test(rest) || (rest !== "" && !/[:[\]/]/.test(rest));
  return isOnlyHost
    ? `the port is missing; write ${scheme}://${rest}:PORT, to listen also with 0 for any free port`
    : `expected ${scheme}://host:port, an IPv6 host in brackets`;
}

function parseNodeAndService(url: string, scheme: NodeScheme, rest: string): FabricUrl {
  const raw = rawPattern.exec(rest)?.[1];
  if (raw !== undefined) return { scheme, host: "", port: 0, name: raw };
  const match = nodePattern.exec(rest);
  if (match === null)
    throw new TypeError(`url "${url}": expected ${scheme}://node:service or ${scheme}://~ and a raw address`);
  const service = Number(match[3]);
  if (service > 0xffff_ffff) throw new TypeError(`url "${url}": service ${service} is above ${0xffff_ffff}`);
  const node = match[1] ?? (match[2] as string);
  return { scheme, host: node === "*" ? "" : node, port: service, name: "" };
}

export function formatHostUrl(scheme: HostScheme | NodeScheme, host: string, port: number): string {
  return `${scheme}://${host.includes(":") ? `[${host}]` : host}:${port}`;
}

/** Whether URLs of the scheme name a host and a port. */
export function hasHosts(scheme: Scheme): scheme is HostScheme {
  return scheme === "tcp" || scheme === "verbs" || scheme === "net";
}

/** Whether the scheme is one of Node's own sockets. */
export function isSocketScheme(scheme: string): scheme is SocketScheme {
  return scheme === "net" || scheme === "net+unix" || scheme === "net+pipe";
}

/** Whether only libfabric understands the addresses of the scheme. */
export function isNodeScheme(scheme: string): scheme is NodeScheme {
  return nodeSchemes.includes(scheme as NodeScheme);
}
