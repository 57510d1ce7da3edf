import type { SecureContextOptions } from "node:tls";

/**
 * TLS of NVMe/TCP, for both sides. The callbacks of Node for keys belong to this cipher suite. Only exchanges with
 * Diffie-Hellman are spoken, which is OpenSSL's default, in groups that cost little.
 */
export const parameters = {
  minVersion: "TLSv1.3",
  maxVersion: "TLSv1.3",
  ciphers: "TLS_AES_128_GCM_SHA256",
  ecdhCurve: "X25519:P-256:P-384:ffdhe3072",
} as const satisfies SecureContextOptions & { readonly ecdhCurve: string };
