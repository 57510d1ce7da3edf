/**
 * The numbers of the control methods, which engines call between themselves (docs/protocol.md, section 6.3). They are
 * in no service table. An engine answers an unknown number with `unimplemented`.
 */
export const builtin = {
  /** Asks why a transfer was refused. */
  explainDenial: 0xff00,
  /** Announces a completed put. */
  putNotification: 0xff01,
  /** Asks for the checksum of ranges of granted memory. */
  checksum: 0xff03,
  /** The holder of a handle asks for its region. */
  borrow: 0xff04,
  /** Grants a borrowed region for as long as this request is open. */
  grant: 0xff05,
  /** Asks for ranges of granted memory, in the answer or as a sealed piece. */
  getPiece: 0xff0a,
  /** Sends bytes for ranges of granted memory, in the request or as a sealed piece. */
  putPiece: 0xff0b,
  /** The requested pieces have been read. */
  releasePieces: 0xff0c,
} as const;

/**
 * The methods of the built-in services, by path. An engine that serves one of these services serves its methods as
 * control methods with a fixed number, and in no service table. They do not lengthen a greeting, and are answered while
 * the engine drains and while it is full.
 */
export const builtinMethods: Readonly<Record<string, BuiltinNumber>> = {
  "cinnabar.streams.v1/next": { number: 0xff06, kind: "unary", isOfCall: true },
  "cinnabar.streams.v1/push": { number: 0xff07, kind: "unary", isOfCall: true },
  "cinnabar.streams.v1/stop": { number: 0xff08, kind: "unary", isOfCall: true },
  "cinnabar.reflection.v1/list": { number: 0xff10, kind: "unary" },
  "cinnabar.reflection.v1/describe": { number: 0xff11, kind: "unary" },
  "cinnabar.inspect.v1/snapshot": { number: 0xff12, kind: "unary" },
  "cinnabar.inspect.v1/watch": { number: 0xff13, kind: "serverStream" },
  "cinnabar.inspect.v1/calls": { number: 0xff14, kind: "unary" },
  "cinnabar.inspect.v1/tail": { number: 0xff15, kind: "serverStream" },
};

/** The number and the kind of a method of a built-in service. */
export interface BuiltinNumber {
  readonly number: number;
  readonly kind: "unary" | "serverStream";
  /**
   * The method belongs to a permitted call, and names the memory that the call has lent. `allow` is not asked again.
   */
  readonly isOfCall?: true;
}

/** Their names. */
export const builtinServices: ReadonlySet<string> = new Set(
  Object.keys(builtinMethods).map((path) => path.slice(0, path.lastIndexOf("/"))),
);

/** The service of the built-in method with this number; undefined for other control methods. */
export function builtinServiceOf(number: number): string | undefined {
  for (const [path, method] of Object.entries(builtinMethods))
    if (method.number === number) return path.slice(0, path.lastIndexOf("/"));
  return undefined;
}

/** The package that has the service. */
export function builtinPackageOf(service: string): string {
  return service === "cinnabar.streams.v1" ? "cinnabar-bulk" : "cinnabar-inspect";
}

/** How many streams of built-in services a session may have open at once, in each direction. */
export const maxBuiltinStreams = 64;

/** Numbers from here on are those of control methods. */
export const firstBuiltin = 0xff00;

/**
 * The slots of control requests. They follow the slots of other requests, so that user calls never block a control
 * request. Control requests that may wait for long are bounded far below this number: `maxBorrowed`, and 256 in
 * `cinnabar-bulk`. All others are answered without waiting for an application, so a control request soon gets a slot.
 */
export const builtinSlots = 1024;
