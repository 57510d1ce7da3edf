/** The ciphers of sealed sessions, and their numbers on the wire. Each takes a key of 32 bytes and an iv of 12 bytes. */
export const suites = { "aes-256-gcm": 1, "chacha20-poly1305": 2 } as const;

/** The ciphers of sealed sessions. */
export type SuiteName = keyof typeof suites;

export const suiteNames = Object.keys(suites) as readonly SuiteName[];

export const keyBytes = 32;
export const ivBytes = 12;
export const tagBytes = 16;
