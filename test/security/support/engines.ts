import type { SecurityOptions } from "cinnabar";
import type { Authority, LeafOptions } from "./authority.ts";

/** The security of an engine with a certificate of this name. */
export function secured(
  ca: Authority,
  name: string,
  options: LeafOptions = {},
  more: Partial<SecurityOptions> = {},
): SecurityOptions {
  const names = `DNS:${name},IP:127.0.0.1`;
  const pair = ca.issue(name, { names, ...options });
  return { tls: { cert: pair.cert, key: pair.key, ca: ca.cert }, ...more };
}
