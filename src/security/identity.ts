import type { Port } from "../fabric/port.ts";
import type { Certificate } from "./certificate.ts";

/** A peer that has proven by TLS that it holds the key of a certificate. */
export interface CertificateIdentity {
  readonly kind: "certificate";
  /**
   * The name that `identify` returned for the certificate. Default: its first URI, else its first DNS name. Never the
   * CN.
   */
  readonly name: string;
  /** All names of the certificate: URIs, DNS names, IP addresses. */
  readonly names: readonly string[];
  /** SHA-256 of the certificate: pairs of hexadecimal digits, with colons between them. */
  readonly fingerprint256: string;
  /** When the certificate ends. */
  readonly validTo: Date;
}

/** A peer that has proven by TLS that it holds a pre-shared key. */
export interface PskIdentity {
  readonly kind: "psk";
  /** The identity that belongs to the key. Every holder of the key has this name. */
  readonly name: string;
}

/**
 * A process of this host, over `shm`: the kernel reports its identity. Numbers are of this process's user namespace.
 */
export interface ProcessIdentity {
  readonly kind: "process";
  readonly uid: number;
  readonly gid: number;
  readonly pid: number;
}

/** This process itself, over `mem`. */
export interface LocalIdentity {
  readonly kind: "local";
}

/** The identity of a session's peer, as it was proven when the session opened. Frozen. */
export type Identity = CertificateIdentity | PskIdentity | ProcessIdentity | LocalIdentity;

/** Gives a certificate its name. Undefined: it has no name, and its holder is refused. */
export type Identify = (certificate: Certificate) => string | undefined;

export const localIdentity: LocalIdentity = Object.freeze({ kind: "local" });

/** The first URI, else the first DNS name. */
export const identifyByName: Identify = ({ uris, dnsNames }) => uris[0] ?? dnsNames[0];

/**
 * The identity of a certificate that the handshake has verified. Undefined when `identify` gives it no name: then the
 * peer is unproven.
 *
 * @throws the error of `identify`, and TypeError when it returns anything but a string or undefined.
 */
export function identityOfCertificate(
  certificate: Certificate,
  identify: Identify,
): CertificateIdentity | undefined {
  const name: unknown = identify(certificate);
  if (name === undefined || name === "") return undefined;
  if (typeof name !== "string")
    throw new TypeError(`security.identify must return a string or undefined, it returned a ${typeof name}`);
  const { uris, dnsNames, ips, fingerprint256, validTo } = certificate;
  const names = Object.freeze([...uris, ...dnsNames, ...ips]);
  return Object.freeze({ kind: "certificate", name, names, fingerprint256, validTo });
}

export function identityOfPsk(name: string): PskIdentity {
  return Object.freeze({ kind: "psk", name });
}

export function identityOfProcess(uid: number, gid: number, pid: number): ProcessIdentity {
  return Object.freeze({ kind: "process", uid, gid, pid });
}

/**
 * Whether two identities are of one principal: resources of one then belong to the other, too. A renewed certificate
 * with the same name is the same principal. The principal of a process is its user. Peers without an identity are one
 * principal.
 */
export function isSamePrincipal(one: Identity | undefined, other: Identity | undefined): boolean {
  return one === other || principalOf(one) === principalOf(other);
}

/** A key for the principal. Names cannot make it ambiguous: only the last part is free text. */
export function principalOf(identity: Identity | undefined): string {
  if (identity === undefined) return "";
  switch (identity.kind) {
    case "process":
      return `process ${identity.uid}`;
    case "local":
      return "local";
    default:
      return `${identity.kind} ${identity.name}`;
  }
}

/**
 * The identity behind an address, where no handshake is needed: over `mem` this process, over `shm` by the kernel.
 */
export function identityByFabric(
  port: Pick<Port, "scheme" | "processOf">,
  address: number,
): Identity | undefined {
  if (port.scheme === "mem") return localIdentity;
  const process = port.processOf(address);
  return process === undefined ? undefined : identityOfProcess(process.uid, process.gid, process.pid);
}
