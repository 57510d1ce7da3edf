import { firstBuiltin } from "./builtin.ts";
import { protocolVersion } from "./message.ts";

/**
 * What two engines tell each other before the first call: the body of `hello` and `welcome`, one msgpack map in both.
 *
 * The `hello` goes to an address nobody has spoken on before, so it carries the way back; the `welcome` repeats what both sides
 * need. Unknown keys are ignored, so that later versions may add some (streams, credits, authentication have theirs reserved).
 */
export interface Greeting extends ReturnPath {
  /** Lowest and highest protocol version spoken. */
  readonly versions: readonly [number, number];
  /** Random 64 bit, drawn when the engine opened: another value at the same address is another life. */
  readonly incarnation: bigint;
  /** Software, library and provider, for people: "cinnabar/0.1.0 libfabric/1.17 net". */
  readonly agent: string;
  /** The longest body it accepts, pulled or not. */
  readonly bodyBytes: number;
  /** How many requests it takes in flight. */
  readonly requests: number;
  /** How many bytes of notice it takes with a put: 8, or 0 where such puts tell it nothing. */
  readonly immediateBytes: number;
  /** After how many milliseconds of silence it gives up a peer that it waits for. */
  readonly heartbeatMs: number;
  /** Where its lanes are, in the order of their numbers; none for an engine that stands for itself. Only in a welcome. */
  readonly lanes: readonly LaneAddress[];
  /** What it serves. Empty in a hello, which must fit one message: the side that connects sends its table afterwards. */
  readonly services: ServiceTable;
}

/** One lane of those that an engine speaks for, as its peer may reach it. */
export interface LaneAddress {
  readonly url: string;
  /** Of the engine that listens there now; 0 while there is none. */
  readonly incarnation: bigint;
}

/** The part of a greeting by which its sender can be answered. The same in every version, so that a no can be told to any of them. */
export interface ReturnPath {
  /** The index and nonce that messages to the sender of this greeting must carry. */
  readonly session: number;
  readonly nonce: number;
  /** Raw fabric address to answer to. Empty in a welcome. */
  readonly address: Uint8Array;
  /** The longest message the sender of this greeting receives, in bytes. */
  readonly messageBytes: number;
}

/** Services by name with their methods' names; methods are numbered through in this order, from 0. */
export type ServiceTable = readonly (readonly [service: string, methods: readonly string[]])[];

export interface GreetingLimits {
  readonly maxServices: number;
  readonly maxMethods: number;
  readonly maxNameLength: number;
  readonly maxAddressBytes: number;
  readonly maxAgentLength: number;
  readonly maxLanes: number;
  readonly maxUrlLength: number;
}

export const greetingLimits: GreetingLimits = {
  maxServices: 4096,
  /** The numbers above belong to the built-in methods. */
  maxMethods: firstBuiltin,
  maxNameLength: 128,
  maxAddressBytes: 256,
  maxAgentLength: 256,
  maxLanes: 256,
  maxUrlLength: 320,
};

/** The heartbeat of a peer that does not state one. */
export const defaultHeartbeatMs = 1000;

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
    ...(greeting.immediateBytes > 0 ? { imm: greeting.immediateBytes } : {}),
    ...(greeting.heartbeatMs !== defaultHeartbeatMs ? { hbt: greeting.heartbeatMs } : {}),
    ...(greeting.lanes.length > 0 ? { lan: packLanes(greeting.lanes) } : {}),
  };
}

/** Lanes as they travel. */
export function packLanes(lanes: readonly LaneAddress[]): [string, bigint][] {
  return lanes.map(({ url, incarnation }) => [url, incarnation]);
}

/** Why a greeting's sender cannot be understood, or "" if it can: no protocol version is spoken on both sides. */
export function versionFault(body: unknown): string {
  if (!isMap(body) || !isVersions(body.v)) return "";
  const [lowest, highest] = body.v;
  if (lowest <= protocolVersion && protocolVersion <= highest) return "";
  return `peer speaks protocol ${lowest} to ${highest}, this side ${protocolVersion}`;
}

/** The way back to a greeting's sender, whatever else is wrong with the greeting; a sentence if there is none. */
export function parseReturnPath(body: unknown): ReturnPath | string {
  if (!isMap(body)) return "greeting is not a map";
  const { ses, non, adr, msg } = body;
  if (!isUint32(ses) || ses === 0 || !isUint32(non)) return "greeting has no session";
  if (!(adr instanceof Uint8Array) || adr.byteLength > greetingLimits.maxAddressBytes)
    return "greeting has no address";
  if (!isUint32(msg) || msg < minMessageBytes)
    return `greeting states a message limit below ${minMessageBytes} bytes`;
  return { session: ses, nonce: non, address: adr, messageBytes: msg };
}

/** The greeting in a decoded body, or a sentence on what is wrong with it. */
export function parseGreeting(body: unknown): Greeting | string {
  const path = parseReturnPath(body);
  if (typeof path === "string") return path;
  const {
    v,
    inc,
    agt,
    bod,
    req,
    svc,
    imm = 0,
    hbt = defaultHeartbeatMs,
    lan = [],
  } = body as Record<string, unknown>;
  if (!isVersions(v)) return "greeting states no protocol versions";
  const outdated = versionFault(body);
  if (outdated !== "") return outdated;
  if (typeof inc !== "bigint" && !isWhole(inc)) return "greeting has no incarnation";
  if (typeof agt !== "string" || agt.length > greetingLimits.maxAgentLength) return "greeting has no agent";
  if (!isWhole(bod)) return "greeting states no body limit";
  if (!isUint32(req) || req === 0) return "greeting states no request limit";
  if (!isUint32(imm)) return "greeting states no length of notices";
  if (!isUint32(hbt) || hbt === 0) return "greeting states no heartbeat";
  const lanes = parseLanes(lan);
  if (typeof lanes === "string") return lanes;
  const fault = servicesFault(svc);
  if (fault !== "") return fault;
  return {
    ...path,
    versions: [v[0], v[1]],
    // Read as int64 or uint64, or shorter by chance: other encoders write a number as short as it goes.
    incarnation: BigInt.asUintN(64, BigInt(inc)),
    agent: agt,
    bodyBytes: Number(bod),
    requests: req,
    immediateBytes: imm,
    heartbeatMs: hbt,
    lanes,
    services: svc as ServiceTable,
  };
}

/** The lanes in a decoded value, or a sentence on what is wrong with it. */
export function parseLanes(value: unknown): LaneAddress[] | string {
  if (!Array.isArray(value)) return "greeting has no list of lanes";
  const { maxLanes, maxUrlLength } = greetingLimits;
  if (value.length > maxLanes) return `greeting names ${value.length} lanes`;
  const lanes: LaneAddress[] = [];
  for (const lane of value) {
    if (!Array.isArray(lane) || lane.length !== 2) return "greeting has a malformed lane";
    const [url, incarnation] = lane as [unknown, unknown];
    if (typeof url !== "string" || url.length === 0 || url.length > maxUrlLength)
      return "greeting has a lane without a URL";
    if (typeof incarnation !== "bigint" && !isWhole(incarnation))
      return "greeting has a lane without an incarnation";
    lanes.push({ url, incarnation: BigInt.asUintN(64, BigInt(incarnation)) });
  }
  return lanes;
}

/** The service table in a decoded body, or a sentence on what is wrong with it. */
export function parseServices(body: unknown): ServiceTable | string {
  const fault = servicesFault(body);
  return fault === "" ? (body as ServiceTable) : fault;
}

function isMap(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isVersions(value: unknown): value is [number, number] {
  return (
    Array.isArray(value) &&
    value.length === 2 &&
    isUint32(value[0]) &&
    isUint32(value[1]) &&
    value[0] <= value[1]
  );
}

/** A whole number that a JavaScript number holds, however wide it travelled. */
function isWhole(value: unknown): value is number | bigint {
  const number = typeof value === "bigint" ? Number(value) : value;
  return typeof number === "number" && Number.isSafeInteger(number) && number >= 0;
}

function isUint32(value: unknown): value is number {
  return typeof value === "number" && value >>> 0 === value;
}

function servicesFault(services: unknown): string {
  if (!Array.isArray(services)) return "greeting has no service table";
  if (services.length > greetingLimits.maxServices) return `greeting names ${services.length} services`;
  let methods = 0;
  const names = new Set<string>();
  for (const entry of services) {
    if (!Array.isArray(entry) || entry.length !== 2 || !isName(entry[0]) || !Array.isArray(entry[1])) {
      return "greeting has a malformed service";
    }
    if (names.size === names.add(entry[0]).size) return `greeting names service ${entry[0]} twice`;
    methods += entry[1].length;
    if (methods > greetingLimits.maxMethods)
      return `greeting names more than ${greetingLimits.maxMethods} methods`;
    if (!entry[1].every(isName)) return `greeting has a malformed method in service ${entry[0]}`;
    if (new Set(entry[1]).size !== entry[1].length)
      return `greeting names a method of service ${entry[0]} twice`;
  }
  return "";
}

function isName(value: unknown): value is string {
  return typeof value === "string" && value.length > 0 && value.length <= greetingLimits.maxNameLength;
}
