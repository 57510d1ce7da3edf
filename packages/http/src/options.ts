import {
  anything,
  boolean,
  type Complete,
  callback,
  checkedBy,
  type FieldsOf,
  fail,
  group,
  integer,
  isImplementation,
  list,
  milliseconds,
  required,
  resolveNested,
  resolveOptions,
  text,
} from "cinnabar/options";
import {
  type AnyService,
  type Client,
  type ClientOptions,
  type Engine,
  type EngineOptions,
  type Implementation,
  Metadata,
} from "cinnabar/standard";
import type { CorsOptions } from "./origins.ts";

/** A peer of an engine: what `engine.connect`, `engine.lazyPeer` and `connectLanes` give. */
export interface ServicePeer {
  client<S extends AnyService>(service: S, options?: ClientOptions): Client<S>;
}

/** A service that a remote peer runs. */
export interface RemoteService {
  readonly service: AnyService;
  /** The peer that runs it. It stays its owner's, who closes it. */
  readonly peer: ServicePeer;
  /** Options of its client, such as `retry`, `timeoutMs` and `instance`. Default: those of `peer.client`. */
  readonly options?: ClientOptions | undefined;
  /** The engine of the peer. Methods of `allow` with memory of the caller need it: byte streams and `bulk`. */
  readonly engine?: Engine | undefined;
}

/**
 * A method whose request or answer is plain bytes instead of JSON, such as a file. Fields that the body does not give
 * come from the query: `?message={"name":"a"}`.
 */
export interface RawMethod {
  /** Such as `files.v1/store`. */
  readonly method: string;
  /**
   * The field of the input that is the body of the request: `bytes()`, `bulk("read")` or `bulkStream("read")`. PUT calls
   * the method, and POST of `application/octet-stream`. Default: the input is JSON.
   */
  readonly body?: string | undefined;
  /**
   * The field that is the body of the answer: `bytes()` of the output, or `bulk("write")` or `bulkStream("write")` of the
   * input. Default: the output, as JSON.
   */
  readonly answer?: string | undefined;
  /**
   * The field of the input, a number or a bigint, that receives where the bytes begin: the first byte of `range` or
   * `content-range`, and 0 without such a header. The answer begins there. Without this field the bytes before are
   * dropped.
   */
  readonly offset?: string | undefined;
  /** The field of the output that says how many bytes of a `bulk("write")` are the answer. Default: all of them. */
  readonly length?: string | undefined;
  /**
   * The most bytes of one body or `bulk`. Default: `limits.maxBodyBytes` where they are held in memory, and no bound for
   * byte streams.
   */
  readonly maxBytes?: number | undefined;
}

/** What `clientOf` sees of a request. */
export interface ClientRequest {
  /** The address that the connection comes from; undefined for a handler that takes a `Request`. */
  readonly address: string | undefined;
  /** The value of a header by its name in lower case. */
  header(name: string): string | undefined;
}

/** Bounds of what clients may ask for. */
export interface HttpLimits {
  /** The bytes of one body. Default 1 MiB. */
  readonly maxBodyBytes: number;
  /** The bytes of all bodies that are being read. Default 64 MiB. */
  readonly maxBodyBytesInAll: number;
  /** The bytes of all bodies of one client, where `clientOf` names clients. Default 16 MiB. */
  readonly maxBodyBytesByClient: number;
  /** How long a body may take, in milliseconds. Default 30,000. */
  readonly maxBodyMs: number;
  /**
   * How long a client may leave plain bytes or the message of a stream half sent, or an answer untaken, in milliseconds.
   * Default 30,000.
   */
  readonly maxStallMs: number;
  /** How deep JSON may be nested. Default 100. */
  readonly maxJsonDepth: number;
  /** The longest deadline that a client may set, in milliseconds. A longer one is cut. Default 300,000. */
  readonly maxTimeoutMs: number;
  /** The unary and one-way calls at the same time. More of them are refused. Default 1024. */
  readonly maxRequests: number;
  /** The streams that are open at the same time. More of them are refused. Default 1024. */
  readonly maxStreams: number;
  /** The same for one client, where `clientOf` names clients. Defaults 64, and 16 streams. */
  readonly maxRequestsByClient: number;
  readonly maxStreamsByClient: number;
}

/** Options of `httpHandler`. */
export interface HttpOptions {
  /** The services: implementations that run in this process, and services of remote peers. */
  readonly services: readonly (Implementation | RemoteService)[];
  /**
   * The methods that can be called, such as `greeter.v1/greet`. No other method can. Methods with memory of the caller
   * (`bulk`, byte streams) are named with the field that is the body: `{ method: "files.v1/store", body: "data" }`.
   */
  readonly allow: readonly (string | RawMethod)[];
  /**
   * Those of `allow` that change nothing. GET calls them, too: links, caches and pages of other origins may do so
   * without asking. `idempotent` is less: a second call does no harm, but the first one may. Default: none.
   */
  readonly safe?: readonly string[] | undefined;
  /** The path before the name of the service, such as `/api`. Default: none. */
  readonly prefix?: string | undefined;
  /**
   * The headers of requests that become metadata, in lower case, such as `authorization`. Values of names that end in
   * `-bin` are base64 and become bytes. Default: none.
   */
  readonly requestHeaders?: readonly string[] | undefined;
  /** The pages of other origins that may call. Default: none may. */
  readonly cors?: CorsOptions | undefined;
  /**
   * Names the client of a request, so that `maxRequestsByClient`, `maxStreamsByClient` and `maxBodyBytesByClient` apply
   * to it: its address, or behind a proxy of yours a header that the proxy sets. Undefined: no limit of its own. Default:
   * none has one, so that one client can take all requests.
   */
  readonly clientOf?: ((request: ClientRequest) => string | undefined) | undefined;
  /**
   * Answers GET of `/livez` and `/readyz` below `prefix`, for probes. `/livez` is 200 while the process answers, and
   * `/readyz` until the handler closes, and where a function is given, while it returns true. Default false.
   */
  readonly health?: boolean | (() => boolean | Promise<boolean>) | undefined;
  /**
   * Whether outputs of at least 1 KiB are compressed by gzip for clients that take it. Streams are not. Set false where
   * a proxy compresses, or where an output has a secret beside text that a stranger chooses: its length gives the
   * secret away. Default true.
   */
  readonly compress?: boolean | undefined;
  /** Bounds of what clients may ask for. */
  readonly limits?: { readonly [K in keyof HttpLimits]?: HttpLimits[K] | undefined } | undefined;
  /**
   * Receives errors that are neither an answer nor a refusal, such as bad options of `engine`; the client reads
   * `internal`. Default: prints them with `console.error`.
   */
  readonly onError?: ((error: unknown) => void) | undefined;
  /** Options of the engine that runs the implementations, such as `middleware`, `admission` and `onHandlerError`. */
  readonly engine?: Omit<EngineOptions, "listen" | "serve"> | undefined;
}

/** The options with the defaults. */
export interface ResolvedHttpOptions
  extends Omit<Complete<HttpOptions>, "allow" | "cors" | "limits" | "clientOf"> {
  readonly allow: readonly RawMethod[];
  readonly clientOf: HttpOptions["clientOf"];
  readonly cors: CorsOptions | undefined;
  readonly limits: HttpLimits;
}

const serviceField = checkedBy((where, name, value): Implementation | RemoteService => {
  if (isImplementation(value)) return value;
  const { service, peer } = (value ?? {}) as Partial<RemoteService>;
  if (service !== undefined && typeof peer?.client === "function") return value as RemoteService;
  return fail(TypeError, where, name, "a result of implement(), or { service, peer }", value);
});

const rawFields = {
  method: required(text(3, 300)),
  body: text(1, 300),
  answer: text(1, 300),
  offset: text(1, 300),
  length: text(1, 300),
  maxBytes: integer(1, Number.MAX_SAFE_INTEGER),
} satisfies FieldsOf<RawMethod>;

/** An entry of `allow`. */
export const allowedField = checkedBy(
  (where, name, value): RawMethod =>
    resolveNested(where, name, typeof value === "object" ? value : { method: value }, rawFields) as RawMethod,
);

const prefixField = checkedBy((where, name, value): string =>
  typeof value === "string" && /^(?:\/[\w.~-]+)*$/.test(value)
    ? value
    : fail(TypeError, where, name, 'a path such as "/api", without a slash at its end', value),
);

const headerField = checkedBy((where, name, value): string => {
  if (typeof value !== "string") return fail(TypeError, where, name, "the name of a header", value);
  try {
    new Metadata({ [value]: "" });
  } catch {
    return fail(TypeError, where, name, "the name of a header in lower case", value);
  }
  return value;
});

const originsField = checkedBy((where, name, value): readonly string[] | "*" => {
  if (value === "*") return value;
  const isOrigin = (each: unknown): boolean =>
    typeof each === "string" && URL.canParse(each) && new URL(each).origin === each;
  if (Array.isArray(value) && value.every(isOrigin)) return value as readonly string[];
  return fail(TypeError, where, name, 'origins such as "https://app.example.com", or "*"', value);
});

const corsFields = {
  origins: required(originsField),
  credentials: boolean(),
  maxAgeS: integer(0, 86_400),
} satisfies FieldsOf<CorsOptions>;

const limitFields = {
  maxBodyBytes: integer(1, 2 ** 31, 2 ** 20),
  maxBodyBytesInAll: integer(1, Number.MAX_SAFE_INTEGER, 64 * 2 ** 20),
  maxBodyBytesByClient: integer(1, Number.MAX_SAFE_INTEGER, 16 * 2 ** 20),
  maxBodyMs: milliseconds({ fallback: 30_000 }),
  maxStallMs: milliseconds({ fallback: 30_000 }),
  maxJsonDepth: integer(1, 1000, 100),
  maxTimeoutMs: milliseconds({ fallback: 300_000 }),
  maxRequests: integer(1, 1_000_000, 1024),
  maxStreams: integer(1, 1_000_000, 1024),
  maxRequestsByClient: integer(1, 1_000_000, 64),
  maxStreamsByClient: integer(1, 1_000_000, 16),
} satisfies FieldsOf<HttpLimits>;

const httpFields = {
  services: required(list(serviceField, 1)),
  allow: required(list(allowedField, 1)),
  safe: list(text(3, 300)),
  prefix: prefixField,
  requestHeaders: list(headerField, 0, 64),
  cors: checkedBy((where, name, value) => resolveNested(where, name, value, corsFields)),
  health: checkedBy((where, name, value) =>
    typeof value === "boolean" || typeof value === "function"
      ? (value as NonNullable<HttpOptions["health"]>)
      : fail(TypeError, where, name, "true, false, or a function that says whether it is ready", value),
  ),
  clientOf: callback<NonNullable<HttpOptions["clientOf"]>>(),
  compress: boolean(true),
  limits: group(limitFields),
  onError: callback<(error: unknown) => void>((error) => console.error("cinnabar-http:", error)),
  engine: anything<NonNullable<HttpOptions["engine"]>>(),
} satisfies FieldsOf<HttpOptions>;

/** @throws TypeError or RangeError that names the option. */
export function resolveHttpOptions(options: HttpOptions): ResolvedHttpOptions {
  const resolved = resolveOptions("httpHandler", options, httpFields);
  const {
    services,
    allow,
    safe = [],
    prefix = "",
    requestHeaders = [],
    cors,
    limits,
    engine = {},
  } = resolved;
  const { health = false, onError } = resolved;
  if (cors?.credentials === true && cors.origins === "*")
    throw new TypeError('httpHandler: cors: credentials need named origins; origins is "*"');
  return {
    ...{
      services,
      allow,
      safe,
      prefix,
      requestHeaders,
      engine,
      health,
      onError,
      compress: resolved.compress,
    },
    clientOf: resolved.clientOf,
    cors: cors as CorsOptions | undefined,
    limits: limits as HttpLimits,
  };
}
