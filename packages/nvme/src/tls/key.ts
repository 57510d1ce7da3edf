import { randomBytes } from "node:crypto";
import { checkedBy } from "cinnabar/options";
import { keyText, parseKeyText } from "../authentication/secret.ts";

/** The form in which NVMe interchanges the keys of TLS. The digits behind it name a hash function. */
const form = "NVMeTLSkey-1";
const keyBytes = 32;

/** A key for TLS that was read. */
export interface TlsKey {
  readonly bytes: Buffer;
  /** The key is bound to the name of a host before it is used. */
  readonly isTransformed: boolean;
}

/**
 * Makes a key for TLS between a host and a target of NVMe/TCP, in the form of NVMe, `NVMeTLSkey-1:01:…`: 32 random
 * bytes and a checksum. `nvme gen-tls-key` makes keys of the same form.
 */
export function makeTlsKey(): string {
  return keyText(form, 1, randomBytes(keyBytes));
}

/** A key in its text form. The error does not show the given value. */
export const tlsKeyField = checkedBy((where, name, value): TlsKey => {
  const parsed = typeof value === "string" ? parseKeyText(form, value) : undefined;
  if (parsed?.key.length === 48 && (parsed.hash === 0 || parsed.hash === 2))
    throw new TypeError(
      `${where}: ${name} must be a key of 32 bytes: one of 48 needs TLS_AES_256_GCM_SHA384, and Node has keys for TLS_AES_128_GCM_SHA256 only`,
    );
  if (parsed?.key.length !== keyBytes || parsed.hash > 1)
    throw new TypeError(
      `${where}: ${name} must be a key for TLS as makeTlsKey gives it, NVMeTLSkey-1:…, and whole`,
    );
  return { bytes: parsed.key, isTransformed: parsed.hash === 1 };
});
