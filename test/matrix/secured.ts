import type { SecurityOptions } from "cinnabar";

/**
 * With CINNABAR_TEST_SECURED in the environment every engine of the matrix has security: sessions begin with a TLS
 * handshake by a pre-shared key, and messages and bulk are sealed, over shm too.
 */
export const isSecured = process.env.CINNABAR_TEST_SECURED !== undefined;

export const security: SecurityOptions = {
  psk: { identity: "matrix", key: Buffer.from("a key of tests: everybody can read it".repeat(2)) },
  shm: "tls",
};

/** What the options of an engine begin with. */
export const securedOptions: { readonly security?: SecurityOptions } = isSecured ? { security } : {};
