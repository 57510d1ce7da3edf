import {
  anything,
  type FieldsOf,
  type Pem,
  type PemSource,
  type PskOptions,
  pem,
  resolveNested,
  type TlsOptions,
} from "cinnabar/options";
import type { Engine, SecurityOptions } from "cinnabar/standard";

/**
 * The functions of `security`. A function cannot be sent to a thread, so the module of the lanes gives them, and each
 * lane has its own.
 */
export interface LaneRules extends Pick<SecurityOptions, "identify" | "allow" | "authorize"> {
  /** As `security.psk.lookup` of `Engine.open`. */
  readonly lookup?: NonNullable<PskOptions["lookup"]>;
}

/**
 * The option `security` of `Engine.open` without the functions that decide: the module of the lanes gives those, as
 * `{ serve, security: { allow } }`. The functions of `tls` that read certificates are called on the main thread.
 */
export interface LaneSecurityOptions
  extends Omit<SecurityOptions, "identify" | "allow" | "authorize" | "psk"> {
  /** A pre-shared key instead of certificates. `{}`: the module of the lanes has `security.lookup`. */
  readonly psk?: Omit<PskOptions, "lookup"> | undefined;
}

/** The certificates of one reading. */
interface ReadCertificates {
  readonly cert: Pem;
  readonly key: Pem;
  readonly ca: Pem;
  readonly crl?: Pem;
}

/** What the engine of each lane and the dispatcher are given: `LaneSecurityOptions` without functions. */
export interface LaneCredentials extends Omit<LaneSecurityOptions, "tls"> {
  readonly tls?: ReadCertificates;
}

/** Those that are functions are refused by name; `Engine.open` checks the values of the others. */
const fields = {
  ...{ tls: anything(), psk: anything(), shm: anything(), bulk: anything(), suites: anything() },
  ...{
    handshakes: anything(),
    allowPlain: anything(),
    identify: anything(),
    allow: anything(),
    authorize: anything(),
  },
} satisfies FieldsOf<SecurityOptions>;

const ruleNames = [
  "identify",
  "allow",
  "authorize",
  "lookup",
] as const satisfies readonly (keyof LaneRules)[];

/**
 * The security of all lanes and their dispatcher. Certificates are read once for all of them, so that all show the same
 * ones.
 */
export class LaneSecurity {
  readonly #options: LaneSecurityOptions;
  #current: LaneCredentials | undefined;

  /** @throws TypeError or RangeError that names the field. Keys are not shown. */
  constructor(options: LaneSecurityOptions) {
    resolveNested("openLanes", "security", options, fields);
    assertNoRules("openLanes: security", options);
    const { psk } = options;
    const { key } = psk ?? {};
    this.#options = key === undefined ? options : { ...options, psk: { ...psk, key: Uint8Array.from(key) } };
  }

  /** As they were read last. */
  get current(): LaneCredentials {
    this.#current ??= this.read();
    return this.#current;
  }

  /** The same as an engine takes them that decides nothing: only the lanes know whether the module gives `lookup`. */
  get judged(): SecurityOptions {
    const { psk, ...rest } = this.current;
    return psk === undefined ? rest : { ...rest, psk: { lookup: () => undefined, ...psk } };
  }

  /** Threads that start from now on get these. */
  set current(credentials: LaneCredentials) {
    this.#current = credentials;
  }

  /** @throws What the functions that read certificates throw. */
  read(): LaneCredentials {
    const { tls, ...rest } = this.#options;
    if (tls === undefined) return rest;
    const { cert, key, ca, crl } = tls;
    const read = { cert: readPem("cert", cert), key: readPem("key", key), ca: readPem("ca", ca) };
    return { ...rest, tls: crl === undefined ? read : { ...read, crl: readPem("crl", crl) } };
  }
}

/** The security of one engine: of a lane, or of the dispatcher. Its certificates are those that it was given last. */
export class EngineSecurity {
  /** For `Engine.open`. Undefined: `openLanes` has no option `security`. */
  readonly options: SecurityOptions | undefined;
  #given: LaneCredentials | undefined;

  constructor(given: LaneCredentials | undefined, rules: LaneRules = {}) {
    this.#given = given;
    if (given === undefined) return;
    const { tls, psk, ...rest } = given;
    const { lookup, ...decisions } = rules;
    this.options = {
      ...rest,
      ...decisions,
      ...(tls === undefined ? {} : { tls: sourcesOf(() => this.#given?.tls as ReadCertificates) }),
      ...(psk === undefined && lookup === undefined
        ? {}
        : { psk: lookup === undefined ? { ...psk } : { ...psk, lookup } }),
    };
  }

  /** @throws TypeError when OpenSSL cannot use them: the former ones hold then. RpcError as `engine.reloadSecurity`. */
  reload(engine: Engine, given: LaneCredentials): void {
    const former = this.#given;
    this.#given = given;
    try {
      engine.reloadSecurity();
    } catch (error) {
      this.#given = former;
      throw error;
    }
  }
}

/** Either every reading has lists, or no reading has any. */
function sourcesOf(read: () => ReadCertificates): TlsOptions {
  const lists = read().crl === undefined ? {} : { crl: () => read().crl as Pem };
  return { cert: () => read().cert, key: () => read().key, ca: () => read().ca, ...lists };
}

/** Why what a module gives as `security` cannot be used, or "". */
export function faultOfRules(rules: unknown): string {
  if (typeof rules !== "object" || rules === null) return "it must be an object";
  for (const [name, rule] of Object.entries(rules)) {
    if (!(ruleNames as readonly string[]).includes(name))
      return `unknown "${name}"; known are ${ruleNames.join(", ")}`;
    if (rule !== undefined && typeof rule !== "function") return `${name} must be a function`;
  }
  return "";
}

/** @throws TypeError for a function that a thread cannot be sent. */
function assertNoRules(where: string, options: LaneSecurityOptions): void {
  const { psk, ...others } = options as SecurityOptions;
  const given = { ...others, lookup: psk?.lookup };
  for (const name of ruleNames)
    if (given[name] !== undefined)
      throw new TypeError(
        `${where}.${name === "lookup" ? "psk.lookup" : name} cannot be sent to a thread: give it in the module of the lanes, as { serve, security: { ${name} } }`,
      );
}

/** A copy in memory of its own: a view of a pool would be sent with the whole pool. */
function readPem(name: keyof TlsOptions, source: PemSource): Pem {
  const read = pem().resolve("openLanes", `security.tls.${name}`, source);
  return read().map((part) => Uint8Array.from(part));
}
