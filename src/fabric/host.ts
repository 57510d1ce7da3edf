import { isIP } from "node:net";
import type { RpcCode } from "../base/errors/code.ts";
import { noDescriptors } from "../base/errors/fabric-error.ts";
import { RpcError } from "../base/errors/rpc-error.ts";

/** Whether an address stands for every interface: 0.0.0.0 or ::. */
export function isWildcard(host: string): boolean {
  return host === "" || host === "*" || host === "0.0.0.0" || host === "::";
}

/**
 * The first numeric address of a host, to listen at.
 * @throws RpcError as `numericHosts`.
 */
export async function numericHost(host: string): Promise<string> {
  return (await numericHosts(host))[0] as string;
}

/**
 * The numeric addresses of a host from the system's resolver, at least one, in the order in which to try them: families
 * take turns, beginning with that of the first address (RFC 8305, section 4).
 * @throws RpcError `unavailable` when the host has none.
 */
export async function numericHosts(host: string): Promise<readonly string[]> {
  if (isIP(host) !== 0) return [plainAddress(host)];
  try {
    // Loaded on demand, because most programs resolve no name.
    const { lookup } = await import("node:dns/promises");
    return byTurns((await lookup(host, { all: true })).map(({ address }) => address));
  } catch (cause) {
    throw obstacle(cause) ?? local("unavailable", `host "${host}" was not found`, cause);
  }
}

/** The IPv4 address in an IPv4-mapped IPv6 address. "%25" is the "%" before a zone (RFC 6874). */
function plainAddress(host: string): string {
  const [, dotted, high, low] =
    /^(?:0:0:0:0:0:|::)ffff:(?:([\d.]+)|([\da-f]{1,4}):([\da-f]{1,4}))$/i.exec(host) ?? [];
  if (dotted !== undefined) return dotted;
  if (high === undefined || low === undefined) return host.replace("%25", "%");
  return [high, low]
    .map((group) => Number.parseInt(group, 16))
    .flatMap((group) => [group >> 8, group & 255])
    .join(".");
}

function byTurns(addresses: readonly string[]): readonly string[] {
  const all = [...new Set(addresses)];
  const first = all.filter((address) => isIP(address) === isIP(all[0] as string));
  const others = all.filter((address) => !first.includes(address));
  const longest = Math.max(first.length, others.length);
  return Array.from({ length: longest }, (_, i) => [first[i], others[i]])
    .flat()
    .filter((address) => address !== undefined);
}

const local = (code: RpcCode, message: string, cause: unknown) => new RpcError({ code, message, cause });

/** Node's permission model, where it is on. Node's types of 20 do not have it. */
const { permission } = process as { permission?: { has(scope: string): boolean } };
/** Before Node 25 the model does not govern the network. */
const governsNetwork = permission !== undefined && process.allowedNodeEnvironmentFlags.has("--allow-net");

/**
 * Throws where the permission model forbids the network. Node's sockets would throw from a callback of Node, and no
 * caller could catch that error.
 *
 * @throws RpcError `permission_denied` where this process may not use the network.
 */
export function assertNetworkAllowed(): void {
  if (governsNetwork && permission?.has("net") === false) throw networkDenied(undefined);
}

const networkDenied = (cause: unknown): RpcError =>
  local(
    "permission_denied",
    "Node's permission model forbids the network; start the process with --allow-net, or without --permission",
    cause,
  );

/** Why the request failed before the network, by the code of Node's error; undefined if it did not. */
function obstacle(cause: unknown): RpcError | undefined {
  const { code } = cause as NodeJS.ErrnoException;
  const lack = noDescriptors[code ?? ""];
  if (lack !== undefined) return local("resource_exhausted", lack, cause);
  return code === "ERR_ACCESS_DENIED" ? networkDenied(cause) : undefined;
}

/** The local address that the system would send from. Connects a datagram socket to find it; this sends nothing. */
export async function localAddressTowards(host: string, port: number): Promise<string> {
  try {
    return await sourceTowards(host, port);
  } catch (cause) {
    throw obstacle(cause) ?? local("unavailable", `no route to host "${host}"`, cause);
  }
}

async function sourceTowards(host: string, port: number): Promise<string> {
  const { createSocket } = await import("node:dgram");
  return new Promise((resolve, reject) => {
    const socket = createSocket(isIP(host) === 6 ? "udp6" : "udp4");
    socket.once("error", (cause) => {
      socket.close();
      reject(cause);
    });
    socket.connect(port, host, () => {
      const { address } = socket.address();
      socket.close();
      resolve(address);
    });
  });
}

/** The numeric host in a raw tcp address (a `sockaddr_in` or `sockaddr_in6` of Linux), or "" for anything else. */
export function hostOfAddress(address: Uint8Array): string {
  if (address.byteLength < 16) return "";
  const view = new DataView(address.buffer, address.byteOffset, address.byteLength);
  const family = view.getUint16(0, true);
  if (family === inet) return address.subarray(4, 8).join(".");
  if (family !== inet6 || address.byteLength < 24) return "";
  const groups: string[] = [];
  for (let at = 8; at < 24; at += 2) groups.push(view.getUint16(at).toString(16));
  return groups.join(":");
}

/**
 * The network that one owner certainly holds, as a key of maps. Of a raw tcp address it is the IPv4 address, or the /64
 * network of the IPv6 address. A raw address of another kind is its own key.
 */
export function networkOfAddress(address: Uint8Array): string {
  const host = hostOfAddress(address);
  if (!host.includes(":")) return host === "" ? Buffer.from(address).toString("latin1") : host;
  if (host.startsWith("0:0:0:0:0:ffff:")) return address.subarray(20, 24).join(".");
  return host.split(":").slice(0, 4).join(":");
}

const inet = 2;
const inet6 = 10;
