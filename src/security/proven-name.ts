import { X509Certificate } from "node:crypto";
import { isIP } from "node:net";
import { certificateOf } from "./certificate.ts";

/** Whether a name is a URI, as SPIFFE's are. */
const isUri = (name: string): boolean => /^[A-Za-z][A-Za-z0-9+.-]*:/.test(name) && isIP(name) === 0;

/**
 * Why a verified certificate does not prove the name; "" where it does. The name is an IP address, a URI, or a host
 * name. It must be in the subjectAltName in that kind: the CN proves nothing.
 */
export function nameFault(der: Uint8Array, name: string): string {
  if (name === "")
    return "the URL has no host that the certificate could prove: give the option `name` of `connect`";
  const certificate = new X509Certificate(der);
  if (proves(certificate, name)) return "";
  const shown = (certificate.subjectAltName ?? "no names").slice(0, 300);
  return `the certificate does not prove the name ${name}; it has ${shown}`;
}

function proves(certificate: X509Certificate, name: string): boolean {
  if (isIP(name) !== 0) return certificate.checkIP(name) !== undefined;
  if (isUri(name)) return certificateOf(certificate).uris.includes(name);
  return certificate.checkHost(name, { subject: "never", partialWildcards: false }) !== undefined;
}
