import { createSocket } from "node:dgram";
import { lookup } from "node:dns/promises";
import { isIP } from "node:net";
import { RpcError } from "../errors/rpc-error.ts";

/** True for an address that stands for every interface. */
export function isWildcard(host: string): boolean {
  return host === "" || host === "*" || host === "0.0.0.0" || host === "::";
}

/** The numeric address of a host, looked up as the system does. Throws `unavailable` when there is none. */
export async function numericHost(host: string): Promise<string> {
  if (isIP(host) !== 0) return host;
  try {
    return (await lookup(host)).address;
  } catch (cause) {
    throw new RpcError({
      code: "unavailable",
      message: `host "${host}" was not found`,
      origin: "local",
      cause,
    });
  }
}

/** Which of our addresses the system would send from: asked by connecting a datagram socket, which sends nothing. */
export function localAddressTowards(host: string, port: number): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = createSocket(isIP(host) === 6 ? "udp6" : "udp4");
    socket.once("error", (cause) => {
      socket.close();
      reject(
        new RpcError({
          code: "unavailable",
          message: `there is no route to ${host}`,
          origin: "local",
          cause,
        }),
      );
    });
    socket.connect(port, host, () => {
      const { address } = socket.address();
      socket.close();
      resolve(address);
    });
  });
}
