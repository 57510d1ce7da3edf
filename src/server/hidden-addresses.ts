import type { RpcErrorOptions } from "../base/errors/rpc-error.ts";

/**
 * The address of a peer in the message of an error: a URL, an IP address with or without a port, or a named host.
 * Punctuation after a URL does not belong to it.
 */
const addresses = new RegExp(
  [
    String.raw`\b[a-z][a-z\d+.-]*://[^\s"',;)]*[^\s"',;):.]`,
    String.raw`\[[\da-f:.]*:[\da-f:.]*(?:%\w+)?\](?::\d+)?`,
    String.raw`\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b`,
    String.raw`\bhost "[^"]*"`,
  ].join("|"),
  "gi",
);

/**
 * The message that a caller receives when the handler has thrown an error. The message of a nested call, or of a
 * connection, contains the peer's address, which only the operator may see. The message of the handler's own error
 * stays unchanged.
 */
export function toldMessage({ message, method, origin }: RpcErrorOptions): string {
  const isOwn = method === undefined && origin === "local";
  return isOwn ? message : message.replace(addresses, "(address)");
}
