import { createHmac, hkdfSync } from "node:crypto";
import type { Ends } from "../authentication/responses.ts";
import type { TlsKey } from "./key.ts";

/** A key as TLS has it. The client sends the identity, and both sides derive the key. */
export interface PreSharedKey {
  readonly identity: string;
  readonly psk: Buffer;
}

/** The version of an identity. Version 1 adds a digest of the key to the two names. */
export type IdentityVersion = 0 | 1;

/** OpenSSL takes no longer identity. */
const maxIdentityBytes = 256;
/** The length of a context is in one byte. */
const maxContextBytes = 255;

/**
 * The pre-shared key of two ends, where the identity of that version has room for both names. Only keys for SHA-256
 * exist: the callbacks of Node know no others.
 */
export function preSharedKey(key: TlsKey, ends: Ends, version: IdentityVersion): PreSharedKey | undefined {
  return derived(key, ends, version, labelled);
}

/**
 * The same as libnvme derived it before its version 1.16, with the label in another form. An identity of version 0 does
 * not show which form its host has used. So only those of version 1 are taken.
 */
export function formerPreSharedKey(key: TlsKey, ends: Ends): PreSharedKey | undefined {
  return derived(key, ends, 1, formerlyLabelled);
}

/** The key of an identity in one of the forms that hosts send. Only a form that the identity may have is derived. */
export function knownKey(key: TlsKey, ends: Ends, identity: string): PreSharedKey | undefined {
  if (identity === `NVMe0R01 ${ends.hostNqn} ${ends.subsystemNqn}`) return preSharedKey(key, ends, 0);
  if (!identity.startsWith("NVMe1R01 ")) return undefined;
  const current = preSharedKey(key, ends, 1);
  if (current?.identity === identity) return current;
  const former = formerPreSharedKey(key, ends);
  return former?.identity === identity ? former : undefined;
}

/** The information for an expansion: a label and its context. */
type Label = (label: string, context: string) => Buffer;

function derived(
  key: TlsKey,
  { hostNqn, subsystemNqn }: Ends,
  version: IdentityVersion,
  label: Label,
): PreSharedKey | undefined {
  const names = `${hostNqn} ${subsystemNqn}`;
  const retained = key.isTransformed ? expand(key.bytes, label("HostNQN", hostNqn)) : key.bytes;
  let [identity, context] = [`NVMe0R01 ${names}`, `NVMe0R01 ${names}`];
  if (version === 1) {
    const digest = createHmac("sha256", retained).update(`${names} NVMe-over-Fabrics`).digest("base64");
    [identity, context] = [`NVMe1R01 ${names} ${digest}`, `01 ${digest}`];
  }
  if (Buffer.byteLength(identity) > maxIdentityBytes || Buffer.byteLength(context) > maxContextBytes)
    return undefined;
  return { identity, psk: expand(retained, label("nvme-tls-psk", context)) };
}

/** HKDF-Extract without a salt, and HKDF-Expand. */
const expand = (key: Buffer, info: Buffer): Buffer =>
  Buffer.from(hkdfSync("sha256", key, Buffer.alloc(0), info, 32));

/** HkdfLabel of TLS 1.3. Names of hosts have at most 223 bytes. */
const labelled: Label = (label, context) =>
  Buffer.concat([
    Buffer.from([0, 32]),
    ...[`tls13 ${label}`, context].flatMap((text) => [
      Buffer.from([Buffer.byteLength(text)]),
      Buffer.from(text),
    ]),
  ]);

const formerlyLabelled: Label = (label, context) =>
  Buffer.concat([Buffer.from([32, 0]), Buffer.from(`tls13 ${label}${context}`)]);
