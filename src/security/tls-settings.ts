import { constants } from "node:crypto";
import type { SecureContext, SecureContextOptions, TlsOptions } from "node:tls";
import { RpcError } from "../base/errors/rpc-error.ts";
import { otherRuntime } from "../fabric/libfabric/runtime.ts";
import type { Credentials } from "./credential-options.ts";
import { Trust } from "./trust.ts";

/** Node's TLS. It loads at first use: a program without `security` starts without it. */
export function nodeTls(): typeof import("node:tls") {
  return process.getBuiltinModule("node:tls");
}

/**
 * Other runtimes than Node lack parts of its TLS.
 * @throws RpcError `unimplemented` where `security` needs one of them.
 */
export function assertSupported({ kind }: Credentials): void {
  const runtime = otherRuntime() || "this Node";
  const { openssl_is_boringssl } = process.features as { openssl_is_boringssl?: boolean };
  let message = "";
  if (typeof nodeTls().TLSSocket.prototype.exportKeyingMaterial !== "function")
    message = `security needs exportKeyingMaterial of node:tls, which ${runtime} does not have`;
  else if (kind === "psk" && openssl_is_boringssl)
    message = `security.psk needs pre-shared keys in TLS 1.3, which ${runtime} does not have`;
  if (message !== "") throw new RpcError({ code: "unimplemented", message, retryable: false });
}

/**
 * The options of both roles for OpenSSL. There are no tickets: a ticket carries the trust of the moment when it was
 * made, and saves little.
 */
const common = {
  minVersion: "TLSv1.3",
  maxVersion: "TLSv1.3",
  secureOptions: constants.SSL_OP_NO_TICKET,
} as const satisfies SecureContextOptions;

/**
 * A pre-shared key belongs to SHA-256. With other suites on offer, an acceptor that also has certificates would choose
 * one of those and ignore the key.
 */
const pskCiphers = "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256";

/** The one application protocol, which both sides must agree on. */
export const applicationProtocol = "cinnabar/1";

/** The certificates and lists of one reading. Never logged: the key is among them. */
export type ReadCredentials = Readonly<SecureContextOptions>;

/**
 * Reads the certificates, key and lists, and tries them.
 *
 * @throws TypeError when OpenSSL cannot use them; errors of the user's functions.
 */
export function readCredentials(credentials: Credentials): ReadCredentials {
  if (credentials.kind === "psk") return { ...common, ciphers: pskCiphers, ca: [] };
  const crl = credentials.crl?.();
  const read = {
    ...common,
    cert: [...credentials.cert()],
    key: [...credentials.key()],
    ca: [...credentials.ca()],
    ...(crl === undefined ? {} : { crl: [...crl] }),
  };
  // Without an authority Node would trust those of the system.
  if (read.ca.every((pem) => !pem.includes("-----BEGIN")))
    throw new TypeError("security.tls.ca has no certificate in PEM");
  return read;
}

/** @throws TypeError when OpenSSL cannot use them. */
export function contextOf(read: ReadCredentials): SecureContext {
  try {
    return nodeTls().createSecureContext(read);
  } catch (cause) {
    throw new TypeError(`security.tls: OpenSSL cannot use the certificates: ${(cause as Error).message}`, {
      cause,
    });
  }
}

/** The trust of one reading. */
export function trustOf({ ca, crl }: ReadCredentials): Trust {
  return new Trust((ca ?? []) as Buffer[], (crl ?? []) as Buffer[]);
}

/** How an acceptor checks connecting peers. */
export function acceptorOptions(read: ReadCredentials, kind: Credentials["kind"]): TlsOptions {
  return {
    ...read,
    ALPNProtocols: [applicationProtocol],
    requestCert: kind === "tls",
    // Set here, because the environment can turn the default off.
    rejectUnauthorized: true,
    // The opening has its own time limit. This one leaves the stream open.
    handshakeTimeout: longestTimeoutMs,
  };
}

const longestTimeoutMs = 2 ** 31 - 1;
