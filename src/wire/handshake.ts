import { firstBuiltin } from "./builtin.ts";
import { protocolVersion } from "./message.ts";

/**
 * The greeting: the body of `hello` and `welcome`, a msgpack map. The acceptor does not know the connector when the
 * `hello` arrives, so a greeting has the return path. Unknown keys are ignored, so that later versions can add keys.
 */
export interface Greeting extends ReturnPath {
  /** The lowest and the highest protocol version that the sender speaks. */
  readonly versions: readonly [number, number];
  /** A random 64-bit number, drawn when the engine opened. Another one at the same address is another engine. */
  readonly incarnation: bigint;
  /** Software, library and provider, for logs: "cinnabar/0.1.0 libfabric/1.17 net". */
  readonly agent: string;
  /** The longest body that the sender accepts, rendezvous or not. */
  readonly bodyBytes: number;
  /** How many requests the sender accepts in flight. */
  readonly requests: number;
  /** The bytes of a put notification that the sender accepts with a write: 8, or 0 for none. */
  readonly immediateBytes: number;
  /** In a sealed session: the sender lets regions travel unsealed, if its peer does too. */
  readonly plainBulk?: boolean;
  /** Milliseconds of silence after which the sender declares a peer lost, while it waits for the peer. */
  readonly heartbeatMs: number;
  /** Milliseconds that the sender keeps a rendezvous body while its peer reports no progress. */
  readonly bodyStallMs: number;
  /**
   * The nonce of an earlier hello of the sender that was not answered in time: the session of that hello is unused.
   * Only in a hello.
   */
  readonly repeats?: ReturnPath["nonce"] | undefined;
  /**
   * The services of the sender that do not serve. Absent: all serve. Only in a welcome: later changes are announced.
   */
  readonly health?: ToldHealth | undefined;
  /** The services of the sender. Empty in a hello, which must fit one message: the connector sends its table later. */
  readonly services: ServiceTable;
}

/** The services of an engine that do not serve, as it reports them to its peers. */
export interface ToldHealth {
  /** Counts the changes. A lower one is older. */
  readonly edition: number;
  /** The names of services with the reason, "" for none. The service "" is the whole engine. */
  readonly notServing: readonly (readonly [service: string, reason: string])[];
}

/** The part of a greeting that an answer needs. It is the same in every version, so any version can be refused. */
export interface ReturnPath {
  /** The index, and the nonce of 64 bits, that messages to the sender of this greeting must carry. */
  readonly session: number;
  readonly nonce: bigint;
  /** The raw fabric address for answers. Empty in a welcome. */
  readonly address: Uint8Array;
  /** The longest message the sender of this greeting receives, in bytes. */
  readonly messageBytes: number;
}

/** A method of a service table: a name alone for a unary method, a name and the number of its kind for others. */
export type TableMethod = string | readonly [name: string, kind: number];

/** Services and their methods. Methods are numbered from 0 in this order, across all services. */
export type ServiceTable = readonly (readonly [service: string, methods: readonly TableMethod[]])[];

/** The numbers of the kinds of methods in a service table. */
export const methodKindNumbers = {
  unary: 0,
  serverStream: 1,
  clientStream: 2,
  duplexStream: 3,
  oneWay: 4,
} as const;

export const greetingLimits = {
  maxServices: 4096,
  /** Higher numbers are control methods. */
  maxMethods: firstBuiltin,
  maxNameLength: 128,
  maxAddressBytes: 256,
  maxAgentLength: 256,
  maxNotServing: 256,
  maxReasonLength: 256,
} as const;

/** The heartbeat of a peer, if its greeting does not say. */
export const defaultHeartbeatMs = 1000;

/** How long a peer keeps bodies, if its greeting does not say. */
export const defaultBodyStallMs = 10_000;

/** The lowest message limit that a peer may state: room for a header, a frame and a small body. */
export const minMessageBytes = 4096;

/** The greeting as it is sent: a map with short keys. */
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
    ...(greeting.bodyStallMs !== defaultBodyStallMs ? { stl: greeting.bodyStallMs } : {}),
    ...(greeting.repeats !== undefined ? { rep: greeting.repeats } : {}),
    ...(greeting.plainBulk === true ? { blk: 1 } : {}),
    ...(greeting.health === undefined ? {} : { hea: packHealth(greeting.health) }),
  };
}

/** The wire form of a health report. */
export function packHealth({ edition, notServing }: ToldHealth): unknown[] {
  return [edition, notServing];
}

/** Whether a health report is newer than another. The next report may overtake a long one. */
export function isNewer(health: ToldHealth, than: ToldHealth | undefined): boolean {
  return than === undefined || health.edition > than.edition;
}

/** The fault of a greeting without a common protocol version, or "". */
export function versionFault(body: unknown): string {
  if (!isMap(body) || !isVersions(body.v)) return "";
  const [lowest, highest] = body.v;
  if (lowest <= protocolVersion && protocolVersion <= highest) return "";
  return `peer speaks protocol ${lowest} to ${highest}, this side ${protocolVersion}`;
}

/** The return path of a greeting, whatever other fault it has, or a sentence that names the fault. */
export function parseReturnPath(body: unknown): ReturnPath | string {
  if (!isMap(body)) return "greeting is not a map";
  const { ses, non, adr, msg } = body;
  if (!isUint32(ses) || ses === 0) return "greeting has no session";
  const nonce = uint64(non);
  if (nonce === undefined || nonce === 0n) return "greeting has no nonce";
  if (!(adr instanceof Uint8Array) || adr.byteLength > greetingLimits.maxAddressBytes)
    return "greeting has no address";
  if (!isUint32(msg) || msg < minMessageBytes)
    return `greeting states a message limit below ${minMessageBytes} bytes`;
  return { session: ses, nonce, address: adr, messageBytes: msg };
}

/** The versions and the former hello in a hello, or a sentence that names the fault. */
export function parseVersions(body: unknown): Pick<Greeting, "versions" | "repeats"> | string {
  const { v, rep } = body as Record<string, unknown>;
  if (!isVersions(v)) return "greeting states no protocol versions";
  const outdated = versionFault(body);
  if (outdated !== "") return outdated;
  const repeats = rep === undefined ? undefined : uint64(rep);
  if (rep !== undefined && repeats === undefined) return "greeting repeats a hello without a nonce";
  return { versions: [v[0], v[1]], repeats };
}

/** The greeting in a decoded body, or a sentence that names the fault. */
export function parseGreeting(body: unknown): Greeting | string {
  const path = parseReturnPath(body);
  if (typeof path === "string") return path;
  const {
    inc,
    agt,
    bod,
    req,
    svc,
    imm = 0,
    hbt = defaultHeartbeatMs,
    stl = defaultBodyStallMs,
    blk,
    hea,
  } = body as Record<string, unknown>;
  const opening = parseVersions(body);
  if (typeof opening === "string") return opening;
  const incarnation = uint64(inc);
  if (incarnation === undefined) return "greeting has no incarnation";
  if (typeof agt !== "string" || agt.length > greetingLimits.maxAgentLength) return "greeting has no agent";
  if (!isWhole(bod)) return "greeting states no body limit";
  if (!isUint32(req) || req === 0) return "greeting states no request limit";
  if (!isUint32(imm)) return "greeting states no length of put notifications";
  if (!isUint32(hbt) || hbt === 0) return "greeting states no heartbeat";
  if (!isUint32(stl) || stl === 0) return "greeting does not say how long bodies are kept";
  const health = hea === undefined ? undefined : parseHealth(hea);
  if (typeof health === "string") return health;
  const fault = servicesFault(svc);
  if (fault !== "") return fault;
  return {
    ...path,
    ...opening,
    incarnation,
    agent: agt,
    bodyBytes: Number(bod),
    requests: req,
    immediateBytes: imm,
    heartbeatMs: hbt,
    bodyStallMs: stl,
    ...(blk === 1 ? { plainBulk: true } : {}),
    ...(health === undefined ? {} : { health }),
    services: svc as ServiceTable,
  };
}

/** The health report in a decoded value, or a sentence that names the fault. */
function parseHealth(value: unknown): ToldHealth | string {
  if (!Array.isArray(value) || value.length !== 2) return "greeting has a malformed health";
  const [edition, notServing] = value as [unknown, unknown];
  const { maxNotServing, maxNameLength, maxReasonLength } = greetingLimits;
  if (!isUint32(edition) || !Array.isArray(notServing)) return "greeting has a malformed health";
  if (notServing.length > maxNotServing)
    return `greeting names ${notServing.length} services that do not serve`;
  for (const entry of notServing as unknown[]) {
    if (!Array.isArray(entry) || entry.length !== 2) return "greeting has a malformed health";
    const [service, reason] = entry as [unknown, unknown];
    if (typeof service !== "string" || service.length > maxNameLength)
      return "greeting has a health without a service";
    if (typeof reason !== "string" || reason.length > maxReasonLength)
      return "greeting has a health without a reason";
  }
  return { edition, notServing: notServing as [string, string][] };
}

/** The health in the decoded body of an announcement, or a sentence that names the fault; undefined for a service table. */
export function parseAnnouncedHealth(body: unknown): ToldHealth | string | undefined {
  return isMap(body) && body.hea !== undefined ? parseHealth(body.hea) : undefined;
}

/** The service table in a decoded body, or a sentence that names the fault. */
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

/** Whether a value is a whole number that a JavaScript number holds exactly, in any width. */
function isWhole(value: unknown): value is number | bigint {
  const number = typeof value === "bigint" ? Number(value) : value;
  return typeof number === "number" && Number.isSafeInteger(number) && number >= 0;
}

/** A number of 64 bits, modulo 2^64: an int64, a uint64, or a shorter format, since other encoders use the shortest. */
function uint64(value: unknown): bigint | undefined {
  return typeof value === "bigint" || isWhole(value) ? BigInt.asUintN(64, BigInt(value)) : undefined;
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
    if (!entry[1].every(isMethod)) return `greeting has a malformed method in service ${entry[0]}`;
    if (new Set(entry[1].map(nameOfMethod)).size !== entry[1].length)
      return `greeting names a method of service ${entry[0]} twice`;
  }
  return "";
}

function isMethod(value: unknown): value is TableMethod {
  if (!Array.isArray(value)) return isName(value);
  return value.length === 2 && isName(value[0]) && isUint32(value[1]) && value[1] <= maxMethodKind;
}

const maxMethodKind = methodKindNumbers.oneWay;

export function nameOfMethod(method: TableMethod): string {
  return typeof method === "string" ? method : method[0];
}

export function kindOfMethod(method: TableMethod): number {
  return typeof method === "string" ? methodKindNumbers.unary : method[1];
}

/** Names of digits alone are refused: tables of such strings can be made to collide (see `work.ts`). */
function isName(value: unknown): value is string {
  return (
    typeof value === "string" &&
    value.length > 0 &&
    value.length <= greetingLimits.maxNameLength &&
    !/^\d+$/.test(value)
  );
}
