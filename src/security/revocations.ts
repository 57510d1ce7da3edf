/**
 * The content of revocation lists, by authority. OpenSSL uses the same lists in each handshake, and Node does not
 * return them. This copy is for peers that are already connected.
 */
export class Revocations {
  /** Serial numbers by the name of their authority; both are the hexadecimal digits of their DER. */
  readonly #serials = new Map<string, Set<string>>();

  /** @throws TypeError for lists that OpenSSL would not take either. */
  constructor(lists: readonly Uint8Array[]) {
    for (const pem of lists) for (const der of blocks(pem)) this.#add(der);
  }

  /** Whether the authority of a certificate in DER has revoked it. */
  has(certificate: Uint8Array): boolean {
    const { issuer, serial } = issuerAndSerial(certificate);
    return this.#serials.get(issuer)?.has(serial) === true;
  }

  #add(der: Uint8Array): void {
    // version?, algorithm, issuer, thisUpdate, nextUpdate?, revokedCertificates?, extensions? (RFC 5280, section 5.1)
    const fields = [...derMembers(der, first(derMembers(der, first(derValues(der)))))];
    if (fields[0]?.tag === derTag.integer) fields.shift();
    const [, issuer, ...rest] = fields;
    if (issuer === undefined) throw new TypeError("a revocation list has no issuer");
    const key = hexOf(der, issuer);
    const serials = this.#serials.get(key) ?? new Set<string>();
    this.#serials.set(key, serials);
    const revoked = rest.find(({ tag }) => tag === derTag.sequence);
    // After the times a sequence is the list itself: extensions have another tag.
    for (const entry of revoked === undefined ? [] : derMembers(der, revoked))
      serials.add(hexOf(der, first(derMembers(der, entry))));
  }
}

/** The lists in a PEM text. */
function blocks(pem: Uint8Array): Buffer[] {
  const found = Buffer.from(pem)
    .toString("latin1")
    .matchAll(/-----BEGIN X509 CRL-----([^-]*)-----END X509 CRL-----/g);
  return [...found].map(([, text = ""]) => Buffer.from(text, "base64"));
}

function issuerAndSerial(der: Uint8Array): { readonly issuer: string; readonly serial: string } {
  // [version], serialNumber, algorithm, issuer … (RFC 5280, section 4.1)
  const fields = [...derMembers(der, first(derMembers(der, first(derValues(der)))))];
  const at = fields.findIndex(({ tag }) => tag === derTag.integer);
  const [serial, issuer] = [fields[at], fields[at + 2]];
  if (serial === undefined || issuer === undefined) throw new TypeError("a certificate has no issuer");
  return { issuer: hexOf(der, issuer), serial: hexOf(der, serial) };
}

function first(values: Iterable<DerValue>): DerValue {
  for (const value of values) return value;
  throw new TypeError("a value in DER has no members");
}

const hexOf = (bytes: Uint8Array, { start, end }: DerValue): string =>
  Buffer.from(bytes.buffer, bytes.byteOffset + start, end - start).toString("hex");

/** A value in DER, the encoding of X.509: its tag, and the offsets of its content. */
interface DerValue {
  readonly tag: number;
  /** Offset of the whole value; then of its content, and of its end. */
  readonly from: number;
  readonly start: number;
  readonly end: number;
}

const derTag = { integer: 0x02, sequence: 0x30, utcTime: 0x17, generalizedTime: 0x18 } as const;

/** The values that follow each other between two offsets. @throws TypeError when they are cut off. */
function* derValues(bytes: Uint8Array, start = 0, end = bytes.byteLength): Generator<DerValue> {
  for (let at = start; at < end; ) {
    const value = derValueAt(bytes, at, end);
    yield value;
    at = value.end;
  }
}

/** The values in a value. */
const derMembers = (bytes: Uint8Array, { start, end }: DerValue): Generator<DerValue> =>
  derValues(bytes, start, end);

function derValueAt(bytes: Uint8Array, from: number, end: number): DerValue {
  const short = byteAt(bytes, from + 1, end);
  let start = from + 2;
  let length = short;
  if (short > 0x7f) {
    length = 0;
    for (let left = short & 0x7f; left > 0; left--) length = length * 256 + byteAt(bytes, start++, end);
  }
  if (start + length > end) throw cutOff();
  return { tag: bytes[from] as number, from, start, end: start + length };
}

function byteAt(bytes: Uint8Array, at: number, end: number): number {
  if (at >= end) throw cutOff();
  return bytes[at] as number;
}

const cutOff = (): TypeError => new TypeError("a value in DER is cut off");
