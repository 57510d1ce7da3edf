import {
  createHash,
  createPublicKey,
  generateKeyPairSync,
  type KeyObject,
  randomBytes,
  sign,
} from "node:crypto";
import {
  bitString,
  explicit,
  implicit,
  integer,
  objectIdentifier,
  octetString,
  pem,
  sequence,
  setOf,
  smallInteger,
  time,
  utf8String,
  yes,
} from "./der.ts";
import { alternativeNames, type Names } from "./names.ts";

// X.509 certificates and revocation lists (RFC 5280) with keys on the curve P-256. Making them takes a page; a library
// for it would be a dependency of every user of the package.

/** A certificate in PEM, and its key. */
export interface Issued {
  readonly cert: string;
  /** PKCS #8 in PEM. */
  readonly key: string;
}

/** Who signs. */
export interface Signer {
  /** The CN of its certificate. */
  readonly name: string;
  readonly key: KeyObject;
}

/** From when and until when something is valid. */
export interface Validity {
  readonly from: Date;
  readonly to: Date;
}

const ecdsaWithSha256 = sequence(objectIdentifier("1.2.840.10045.4.3.2"));
const extensionIds = {
  subjectKeyIdentifier: "2.5.29.14",
  keyUsage: "2.5.29.15",
  subjectAltName: "2.5.29.17",
  basicConstraints: "2.5.29.19",
  crlNumber: "2.5.29.20",
  authorityKeyIdentifier: "2.5.29.35",
  extendedKeyUsage: "2.5.29.37",
} as const;
const serverAndClient = sequence(
  objectIdentifier("1.3.6.1.5.5.7.3.1"),
  objectIdentifier("1.3.6.1.5.5.7.3.2"),
);
const certSignAndCrlSign = bitString(Buffer.from([0b0000_0110]), 1);
const digitalSignature = bitString(Buffer.from([0b1000_0000]), 7);

/** An authority, which signs itself. It signs no other authority. */
export function issueAuthority(name: string, validity: Validity): Issued {
  const { privateKey } = newKey();
  const signer = { name, key: privateKey };
  return issued(signer, name, privateKey, validity, [
    extension("basicConstraints", sequence(yes, smallInteger(0)), "critical"),
    extension("keyUsage", certSignAndCrlSign, "critical"),
  ]);
}

/** A certificate for one engine, which connects and is connected to. */
export function issueLeaf(signer: Signer, name: string, names: Names, validity: Validity): Issued {
  const { privateKey } = newKey();
  return issued(signer, name, privateKey, validity, [
    extension("basicConstraints", sequence(), "critical"),
    extension("keyUsage", digitalSignature, "critical"),
    extension("extendedKeyUsage", serverAndClient),
    extension("subjectAltName", alternativeNames(names)),
  ]);
}

/** A certificate that is revoked. */
export interface RevokedSerial {
  /** In hexadecimal digits. */
  readonly serial: string;
  readonly at: Date;
}

/** The revocation list with that number, which rises. In the PEM form that Node reads. */
export function revocationList(
  { name, key }: Signer,
  number: number,
  revoked: readonly RevokedSerial[],
  { from, to }: Validity,
): string {
  const entries = revoked.map(({ serial, at }) => sequence(integer(Buffer.from(serial, "hex")), time(at)));
  const body = sequence(
    smallInteger(1),
    ecdsaWithSha256,
    distinguishedName(name),
    time(from),
    time(to),
    ...(entries.length === 0 ? [] : [sequence(...entries)]),
    explicit(
      0,
      sequence(
        extension("authorityKeyIdentifier", sequence(implicit(0, keyIdentifier(key)))),
        extension("crlNumber", smallInteger(number)),
      ),
    ),
  );
  return pem("X509 CRL", signed(body, key));
}

function newKey(): { readonly privateKey: KeyObject } {
  return generateKeyPairSync("ec", { namedCurve: "P-256" });
}

function issued(
  signer: Signer,
  subject: string,
  key: KeyObject,
  { from, to }: Validity,
  extensions: readonly Buffer[],
): Issued {
  // 126 random bits: positive, and of 16 bytes (RFC 5280 allows 20).
  const serial = randomBytes(16);
  serial[0] = ((serial[0] as number) & 0x3f) | 0x40;
  const body = sequence(
    explicit(0, smallInteger(2)),
    integer(serial),
    ecdsaWithSha256,
    distinguishedName(signer.name),
    sequence(time(from), time(to)),
    distinguishedName(subject),
    publicKeyInfo(key),
    explicit(
      3,
      sequence(
        ...extensions,
        extension("subjectKeyIdentifier", octetString(keyIdentifier(key))),
        extension("authorityKeyIdentifier", sequence(implicit(0, keyIdentifier(signer.key)))),
      ),
    ),
  );
  return {
    cert: pem("CERTIFICATE", signed(body, signer.key)),
    key: key.export({ type: "pkcs8", format: "pem" }) as string,
  };
}

function signed(body: Buffer, key: KeyObject): Buffer {
  return sequence(body, ecdsaWithSha256, bitString(sign("sha256", body, key)));
}

function extension(name: keyof typeof extensionIds, value: Buffer, critical?: "critical"): Buffer {
  const id = objectIdentifier(extensionIds[name]);
  return critical === undefined ? sequence(id, octetString(value)) : sequence(id, yes, octetString(value));
}

function distinguishedName(commonName: string): Buffer {
  return sequence(setOf(sequence(objectIdentifier("2.5.4.3"), utf8String(commonName))));
}

function publicKeyInfo(key: KeyObject): Buffer {
  return createPublicKey(key).export({ type: "spki", format: "der" });
}

/** 160 bits of the SHA-256 of the key (RFC 7093). */
function keyIdentifier(key: KeyObject): Buffer {
  return createHash("sha256").update(publicKeyInfo(key)).digest().subarray(0, 20);
}
