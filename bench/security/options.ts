import type { SecurityOptions } from "cinnabar";
import { credentials } from "./credentials.ts";

/** The security of an engine of a workload that seals; none of another. */
export function securityFor(isSealed: boolean): { readonly security?: SecurityOptions } {
  return isSealed ? { security: { tls: credentials() } } : {};
}

/** What a transport such as `sealed:tcp://127.0.0.1:0` says. */
export function parseTransport(transport: string): { readonly url: string; readonly isSealed: boolean } {
  const isSealed = transport.startsWith("sealed:");
  return { url: isSealed ? transport.slice("sealed:".length) : transport, isSealed };
}
