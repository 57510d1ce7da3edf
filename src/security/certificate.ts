import { X509Certificate } from "node:crypto";
import { isIP } from "node:net";

/** The content of a peer's certificate. The handshake has verified its chain, its validity and the revocation lists. */
export interface Certificate {
  /** The names of each kind in the subjectAltName, in their order. */
  readonly uris: readonly string[];
  readonly dnsNames: readonly string[];
  readonly ips: readonly string[];
  /** The distinguished names as Node prints them, one attribute a line. The CN is no proof of a name. */
  readonly subject: string;
  readonly issuer: string;
  /** In hexadecimal digits. */
  readonly serialNumber: string;
  /** SHA-256 of the certificate: pairs of hexadecimal digits, with colons between them. */
  readonly fingerprint256: string;
  readonly validFrom: Date;
  readonly validTo: Date;
}

/** A certificate as `node:crypto` reads it: the used part. */
export type ParsedCertificate = Pick<
  X509Certificate,
  "subject" | "issuer" | "subjectAltName" | "serialNumber" | "fingerprint256" | "validFrom" | "validTo"
>;

/** @throws TypeError when the subjectAltName cannot be read without doubt. */
export function certificateOf(parsed: ParsedCertificate): Certificate {
  const names = alternativeNames(parsed.subjectAltName ?? "");
  const ofKind = (kind: string) => names.filter((name) => name.kind === kind).map(({ value }) => value);
  return {
    uris: ofKind("URI"),
    dnsNames: ofKind("DNS"),
    ips: ofKind("IP Address").filter((ip) => isIP(ip) !== 0),
    subject: parsed.subject,
    issuer: parsed.issuer,
    serialNumber: parsed.serialNumber,
    fingerprint256: parsed.fingerprint256,
    validFrom: new Date(parsed.validFrom),
    validTo: new Date(parsed.validTo),
  };
}

interface AlternativeName {
  readonly kind: string;
  readonly value: string;
}

const entryPattern = /(DNS|URI|IP Address|email|DirName|Registered ID|othername|[A-Za-z0-9 ]+):/y;

/**
 * Node joins the names by ", ". It writes a name that contains a comma or a quote as a JSON string. So no certificate
 * can hide a second name in its first (CVE-2021-44532).
 */
function alternativeNames(text: string): AlternativeName[] {
  const names: AlternativeName[] = [];
  for (let at = 0; at < text.length; ) {
    entryPattern.lastIndex = at;
    const kind = entryPattern.exec(text)?.[1];
    if (kind === undefined) throw unreadable(text);
    at = entryPattern.lastIndex;
    const end = text[at] === '"' ? quotedEnd(text, at) : unquotedEnd(text, at);
    const raw = text.slice(at, end);
    names.push({ kind, value: raw.startsWith('"') ? unquoted(raw, text) : raw });
    if (end < text.length && !text.startsWith(", ", end)) throw unreadable(text);
    at = end + 2;
  }
  return names;
}

function unquotedEnd(text: string, from: number): number {
  const comma = text.indexOf(", ", from);
  return comma < 0 ? text.length : comma;
}

/** The offset after the quote that ends the JSON string at `from`. */
function quotedEnd(text: string, from: number): number {
  for (let at = from + 1; at < text.length; at++) {
    if (text[at] === "\\") at++;
    else if (text[at] === '"') return at + 1;
  }
  throw unreadable(text);
}

function unquoted(raw: string, text: string): string {
  try {
    return JSON.parse(raw) as string;
  } catch {
    throw unreadable(text);
  }
}

function unreadable(text: string): TypeError {
  return new TypeError(`the subjectAltName of a certificate cannot be read: ${text.slice(0, 200)}`);
}

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
