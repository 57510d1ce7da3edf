import type { Pem, PskOptions, TlsOptions } from "cinnabar/options";
import { anything, type FieldsOf, resolveNested } from "cinnabar/options";
import type { SecurityOptions } from "cinnabar/standard";

/**
 * How members prove to each other's detectors that they may speak: the option `security` of `Engine.open` without the
 * functions that decide. A process that has proven its identity may speak. Give a `key` too where not only members can
 * prove one.
 */
export interface DetectorSecurity extends Pick<SecurityOptions, "shm" | "suites"> {
  /** Certificates. Functions that read them run on the main thread, when the detector opens and reloads. */
  readonly tls?: TlsOptions;
  /** A pre-shared key instead of certificates, the same for all members. */
  readonly psk?: Omit<PskOptions, "lookup">;
}

/** The certificates of one reading. */
interface ReadCertificates {
  readonly cert: Pem;
  readonly key: Pem;
  readonly ca: Pem;
  readonly crl?: Pem;
}

/** The same without functions: a thread can be sent it. */
export interface DetectorCredentials extends Omit<DetectorSecurity, "tls"> {
  readonly tls?: ReadCertificates;
}

/** `Engine.open` checks the values. */
const fields = {
  tls: anything(),
  psk: anything(),
  shm: anything(),
  suites: anything(),
} satisfies FieldsOf<DetectorSecurity>;

/** @throws TypeError for options that a thread cannot be sent */
export function assertSecurity(
  where: string,
  name: string,
  security: unknown,
): asserts security is DetectorSecurity {
  resolveNested(where, name, security, fields);
}

/** @throws TypeError for options that a thread cannot be sent; what the functions throw that read certificates */
export function readCredentials(security: DetectorSecurity): DetectorCredentials {
  assertSecurity("failure detector", "security", security);
  const { tls, ...rest } = security;
  if (tls === undefined) return rest;
  const { cert, key, ca, crl } = tls;
  const read = { cert: readPem(cert), key: readPem(key), ca: readPem(ca) };
  return { ...rest, tls: crl === undefined ? read : { ...read, crl: readPem(crl) } };
}

const readPem = (source: Pem | (() => Pem)): Pem => (typeof source === "function" ? source() : source);

/** The security of a detector's engine. Its certificates are those that it was given last. */
export class EngineSecurity {
  /** For `Engine.open`. */
  readonly options: SecurityOptions;
  #current: DetectorCredentials;

  constructor(credentials: DetectorCredentials) {
    this.#current = credentials;
    const { tls, ...rest } = credentials;
    const read = (name: keyof ReadCertificates) => () => this.#current.tls?.[name] as Pem;
    const crl = tls?.crl === undefined ? {} : { crl: read("crl") };
    this.options =
      tls === undefined
        ? rest
        : { ...rest, tls: { cert: read("cert"), key: read("key"), ca: read("ca"), ...crl } };
  }

  /** Calls `apply`, which reads the certificates; where it throws, the former ones stay. */
  replace(credentials: DetectorCredentials, apply: () => void): void {
    const former = this.#current;
    this.#current = credentials;
    try {
      apply();
    } catch (error) {
      this.#current = former;
      throw error;
    }
  }
}
