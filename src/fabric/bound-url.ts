import type { OpenedPort } from "./libfabric/addon.ts";
import { formatHostUrl, isNodeScheme, type NativeScheme } from "./libfabric/url.ts";

/**
 * The URL at which peers can connect. For fabrics with node and service: an address that only the provider can read.
 */
export function boundUrl(
  scheme: NativeScheme,
  { address, host, service, name }: OpenedPort,
  asked: string,
): string {
  if (scheme === "shm") return `shm://${name}`;
  if (isNodeScheme(scheme) && host === "") return `${scheme}://~${Buffer.from(address).toString("hex")}`;
  return formatHostUrl(scheme, asked === "" ? host : asked, service);
}
