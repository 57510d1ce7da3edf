import { randomBytes } from "node:crypto";
import { type IpcSocketConnectOpts, isIP, type Socket, type TcpSocketConnectOpts } from "node:net";
import { fabricError, fabricErrorNumber } from "../../base/errors/fabric-error.ts";
import { RpcError } from "../../base/errors/rpc-error.ts";
import { type FabricUrl, formatHostUrl } from "../libfabric/url.ts";
import { openReasons } from "../open-error.ts";
import { FrameFault } from "./frame.ts";

export const provider = "node:net";

type SocketPlace = Pick<FabricUrl, "scheme" | "host" | "port" | "name">;

/** Where to connect or listen, for `node:net`. */
export function placeOf({
  scheme,
  host,
  port,
  name,
}: SocketPlace): TcpSocketConnectOpts | IpcSocketConnectOpts {
  if (scheme === "net") return { host, port };
  if (scheme === "net+unix") return { path: name };
  if (process.platform === "win32") return { path: `\\\\.\\pipe\\${name}` };
  throw new RpcError({
    code: "unimplemented",
    message: `net+pipe://${name}: named pipes exist on Windows only; use net+unix:///path here`,
    retryable: false,
  });
}

export function urlOf({ scheme, host, port, name }: SocketPlace): string {
  return scheme === "net" ? formatHostUrl("net", host, port) : `${scheme}://${name}`;
}

/** Why the system cannot listen at a URL. */
export function listenError(error: NodeJS.ErrnoException, url: string): RpcError {
  if (error.code === "ERR_ACCESS_DENIED")
    return new RpcError({
      code: "permission_denied",
      message: `cannot open ${url}: Node's permission model forbids to write there; start the process with --allow-fs-read and --allow-fs-write`,
      cause: error,
    });
  const name = isPathGone(error) ? "EACCES" : (error.code ?? "");
  const reasons = url.startsWith("net:") ? openReasons : { ...openReasons, ...pathReasons };
  return fabricError({
    provider,
    op: "listen",
    name,
    code: fabricErrorNumber(name) ?? unknownError,
    message: `cannot open ${url}: ${(error.syscall !== undefined && reasons[name]) || error.message}`,
    cause: error,
  });
}

const isPathGone = ({ code }: NodeJS.ErrnoException) => code === "ENOENT" || code === "ENOTDIR";
const pathReasons: Readonly<Record<string, string>> = {
  EACCES: "this user may not create a socket there, or the folder does not exist",
  EADDRINUSE: "the address is in use. Stop who listens there, or choose another address",
};

/** Why a connection failed; `error` is undefined where the peer ended it before its hello. */
export function connectError(error: NodeJS.ErrnoException | FrameFault | undefined): RpcError {
  const code = error instanceof FrameFault ? notTheProtocol : connectCode(error?.code);
  return fabricError({ provider, op: "connect", code, cause: error });
}

function connectCode(name = "ECONNRESET"): number {
  // The file of the socket is missing.
  return name === "ENOENT" ? connectionRefused : (fabricErrorNumber(name) ?? unknownError);
}

const notTheProtocol = 71; // EPROTO
const connectionRefused = 111;
const unknownError = 256; // FI_EOTHER

/**
 * The return address of a peer: the socket address it connects from, in the form of Linux, and a name that cannot be
 * guessed. Layers above count each peer's use by the host in it.
 */
export function returnAddress({ remoteAddress = "", remotePort = 0 }: Socket): Buffer {
  const host = remoteAddress.replace(/^::ffff:(?=\d+\.)/, "").replace(/%.*/, "");
  const address = Buffer.alloc(socketAddressBytes[isIP(host)] as number);
  address.writeUInt16LE(families[isIP(host)] as number);
  if (isIP(host) !== 0) address.writeUInt16BE(remotePort, 2);
  if (isIP(host) === 4) address.set(host.split(".").map(Number), 4);
  if (isIP(host) === 6)
    for (const [index, group] of groupsOf(host).entries()) address.writeUInt16BE(group, 8 + 2 * index);
  return Buffer.concat([address, randomBytes(nameBytes)]);
}

const nameBytes = 16;
/** AF_UNIX, AF_INET and AF_INET6 of Linux, and the lengths of their addresses, by what `isIP` says. */
const families: Readonly<Record<number, number>> = { 0: 1, 4: 2, 6: 10 };
const socketAddressBytes: Readonly<Record<number, number>> = { 0: 2, 4: 16, 6: 28 };

/** The eight groups of an IPv6 address. */
function groupsOf(host: string): number[] {
  const [head = "", tail] = host.split("::");
  const parse = (text: string) =>
    text === "" ? [] : text.split(":").map((group) => Number.parseInt(group, 16));
  if (tail === undefined) return parse(head);
  const [before, after] = [parse(head), parse(tail)];
  return [...before, ...new Array<number>(8 - before.length - after.length).fill(0), ...after];
}
