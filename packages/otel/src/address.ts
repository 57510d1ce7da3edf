import type { Attributes } from "@opentelemetry/api";
import { attribute, own } from "./conventions.ts";

/** Names of peers are those of URLs that the program connects to, but resolvers may name many. */
const maxKept = 1_000;
const kept = new Map<string, Attributes>();

/**
 * The attributes of the server that a client has connected to: what the program configured, not the backend that was
 * chosen. `peer` is `call.peer`: a URL, or "one of" and several.
 */
export function addressOf(peer: string): Attributes {
  let attributes = kept.get(peer);
  if (attributes === undefined) {
    attributes = parse(peer);
    if (kept.size >= maxKept) kept.clear();
    kept.set(peer, attributes);
  }
  return attributes;
}

function parse(peer: string): Attributes {
  const [, scheme, host, port] = /^([a-z]+):\/\/(.+?)(?::(\d+))?$/.exec(peer) ?? [];
  if (scheme === undefined || host === undefined)
    return { [attribute.serverAddress]: peer.replace(/^one of /, "") };
  const name = host.replace(/^\[(.*)\]$/, "$1");
  return {
    [own.fabric]: scheme,
    [attribute.serverAddress]: name,
    ...(port === undefined ? {} : { [attribute.serverPort]: Number(port) }),
  };
}
