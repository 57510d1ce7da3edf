import { protocolVersion } from "./message.ts";

/**
 * What two engines tell each other before the first call: the body of `hello` and `welcome`, one msgpack map in both.
 *
 * The `hello` goes to an address nobody has spoken on before, so it carries the way back; the `welcome` repeats what both sides
 * need. Unknown keys are ignored, so that later versions may add some (streams, credits, authentication have theirs reserved).
 */
export interface Greeting {
  /** Lowest and highest protocol version spoken. */
  readonly versions: readonly [number, number];
  /** Random 64 bit, drawn when the engine opened: another value at the same address is another life. */
  readonly incarnation: bigint;
  /** The index and nonce that messages to the sender of this greeting must carry. */
  readonly session: number;
  readonly nonce: number;
  /** Raw fabric address to answer to. Empty in a welcome. */
  readonly address: Uint8Array;
  /** Software, library and provider, for people: "cinnabar/0.1.0 libfabric/1.17 net". */
  readonly agent: string;
  /** The longest message the sender of this greeting receives, in bytes. */
  readonly messageBytes: number;
  /** The longest body it accepts, pulled or not. */
  readonly bodyBytes: number;
  /** How many requests it takes in flight. */
  readonly requests: number;
  /** What it serves. Empty in a hello, which must fit one message: the side that connects sends its table afterwards. */
  readonly services: ServiceTable;
}

/** Services by name with their methods' names; methods are numbered through in this order, from 0. */
export type ServiceTable = readonly (readonly [service: string, methods: readonly string[]])[];

export interface GreetingLimits {
  readonly maxServices: number;
  readonly maxMethods: number;
  readonly maxNameLength: number;
  readonly maxAddressBytes: number;
}

export const greetingLimits: GreetingLimits = {
  maxServices: 4096,
  maxMethods: 65_535,
  maxNameLength: 128,
  maxAddressBytes: 256,
};

/** The shortest message limit a peer may state: room for a header, a frame and a small body. */
export const minMessageBytes = 4096;

/** The greeting as it travels: a msgpack map with short keys. */
export function packGreeting(greeting: Greeting): Record<string, unknown> {
  return {
    v: greeting.versions,
    inc: greeting.incarnation,
    ses: greeting.session,
    non: greeting.nonce,
    adr: greeting.address,
    agt: greeting.agent,
    msg: greeting.messageBytes,
    bod: greeting.bodyBytes,
    req: greeting.requests,
    svc: greeting.services,
  };
}

/** The greeting in a decoded body, or a sentence on what is wrong with it. */
export function parseGreeting(body: unknown): Greeting | string {
  if (typeof body !== "object" || body === null || Array.isArray(body)) return "greeting is not a map";
  const { v, inc, ses, non, adr, agt, msg, bod, req, svc } = body as Record<string, unknown>;
  if (!Array.isArray(v) || v.length !== 2 || !isUint32(v[0]) || !isUint32(v[1]) || v[0] > v[1]) {
    return "greeting states no protocol versions";
  }
  if (protocolVersion < v[0] || protocolVersion > v[1]) {
    return `peer speaks protocol ${v[0]} to ${v[1]}, this side ${protocolVersion}`;
  }
  if (typeof inc !== "bigint") return "greeting has no incarnation";
  if (!isUint32(ses) || !isUint32(non)) return "greeting has no session";
  if (!(adr instanceof Uint8Array) || adr.byteLength > greetingLimits.maxAddressBytes) return "greeting has no address";
  if (typeof agt !== "string" || agt.length > 256) return "greeting has no agent";
  if (!isUint32(msg) || msg < minMessageBytes) return `greeting states a message limit below ${minMessageBytes} bytes`;
  if (typeof bod !== "number" || !Number.isSafeInteger(bod) || bod < 0) return "greeting states no body limit";
  if (!isUint32(req) || req === 0) return "greeting states no request limit";
  const fault = servicesFault(svc);
  if (fault !== "") return fault;
  return {
    versions: [v[0], v[1]],
    incarnation: BigInt.asUintN(64, inc),
    session: ses,
    nonce: non,
    address: adr,
    agent: agt,
    messageBytes: msg,
    bodyBytes: bod,
    requests: req,
    services: svc as ServiceTable,
  };
}

/** The service table in a decoded body, or a sentence on what is wrong with it. */
export function parseServices(body: unknown): ServiceTable | string {
  const fault = servicesFault(body);
  return fault === "" ? (body as ServiceTable) : fault;
}

function isUint32(value: unknown): value is number {
  return typeof value === "number" && value >>> 0 === value;
}

function servicesFault(services: unknown): string {
  if (!Array.isArray(services)) return "greeting has no service table";
  if (services.length > greetingLimits.maxServices) return `greeting names ${services.length} services`;
  let methods = 0;
  for (const entry of services) {
    if (!Array.isArray(entry) || entry.length !== 2 || !isName(entry[0]) || !Array.isArray(entry[1])) {
      return "greeting has a malformed service";
    }
    methods += entry[1].length;
    if (methods > greetingLimits.maxMethods) return `greeting names more than ${greetingLimits.maxMethods} methods`;
    if (!entry[1].every(isName)) return `greeting has a malformed method in service ${entry[0]}`;
  }
  return "";
}

function isName(value: unknown): value is string {
  return typeof value === "string" && value.length > 0 && value.length <= greetingLimits.maxNameLength;
}
