import type { TLSSocket } from "node:tls";
import type { SecurityRefusal } from "./security-meter.ts";

export const otherKey = "the pre-shared keys differ";
const otherProtocol = "the peer does not speak cinnabar/1";
const mixed = "one side has certificates, the other a pre-shared key";

/** The meaning of OpenSSL's and Node's codes, for the person who corrects the certificates. */
const causes: Readonly<Record<string, string>> = {
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: "the certificate is of an authority that is not trusted",
  UNABLE_TO_GET_ISSUER_CERT: "the certificate is of an authority that is not trusted",
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: "the certificate is of an authority that is not trusted",
  SELF_SIGNED_CERT_IN_CHAIN: "the certificate is of an authority that is not trusted",
  DEPTH_ZERO_SELF_SIGNED_CERT: "the certificate is of an authority that is not trusted",
  CERT_SIGNATURE_FAILURE: "the certificate is not signed by the authority that it names",
  CERT_HAS_EXPIRED: "the certificate has expired",
  CERT_NOT_YET_VALID: "the certificate is not valid yet",
  CERT_REVOKED: "the certificate is revoked",
  UNABLE_TO_GET_CRL: "there is no revocation list of the certificate's authority",
  CRL_HAS_EXPIRED: "the revocation list of the certificate's authority has expired",
  CRL_NOT_YET_VALID: "the revocation list of the certificate's authority is not valid yet",
  INVALID_PURPOSE: "the usage of the certificate does not include this side of a connection",
  INVALID_CA: "the certificate is signed by one that is no authority",
  PATH_LENGTH_EXCEEDED: "the certificate's chain is longer than its authority allows",
  CERT_CHAIN_TOO_LONG: "the certificate's chain is too long",
  ERR_SSL_PEER_DID_NOT_RETURN_A_CERTIFICATE: "no certificate was shown",
  // Node has no name for some of OpenSSL's verdicts. One of them: the signer is a leaf.
  UNSPECIFIED: "the certificate does not stand the check; who signed it may be no authority",
  ERR_SSL_NO_SUITABLE_SIGNATURE_ALGORITHM: mixed,
  ERR_SSL_NO_SHARED_CIPHER: mixed,
  ERR_SSL_BINDER_DOES_NOT_VERIFY: otherKey,
  ERR_SSL_TLSV1_ALERT_DECRYPT_ERROR: otherKey,
  ERR_SSL_NO_APPLICATION_PROTOCOL: otherProtocol,
};

/** Why an exchange failed. */
export interface ExchangeRefusal {
  readonly refusal: SecurityRefusal;
  /** A sentence for people of this side, without keys. */
  readonly why: string;
  /** The text that is sent to the peer instead of `why`. */
  readonly told?: string;
}

/** Why OpenSSL ended an exchange. `socket` checked the peer's certificate. */
export function tlsFailure(error: Error, socket: TLSSocket): ExchangeRefusal {
  const judged: unknown = socket.authorizationError;
  const code = typeof judged === "string" ? judged : ((error as NodeJS.ErrnoException).code ?? "");
  const cause = causes[code];
  if (cause === undefined)
    return { refusal: "protocol", why: `TLS failed: ${code === "" ? error.message : code}` };
  const why = `${cause} (${code})`;
  if (cause === mixed || cause === otherProtocol) return { refusal: "protocol", why };
  return { refusal: cause === otherKey ? "key" : "certificate", why };
}
