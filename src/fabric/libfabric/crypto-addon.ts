/** The addon's functions for authenticated encryption (`native/crypto/`). They need no libfabric. */
export interface CryptoAddon {
  /** Which libcrypto serves, looked for at the first call: the one inside of node, or the system's. */
  libcrypto(): LibcryptoReport;
  /**
   * Makes a cipher of a suite's number, a key (32 bytes) and an iv (12 bytes) for one direction: sealing or opening.
   * Returns a handle for `closeAead`; -ENOSYS (-38) where libcrypto does not have the suite, or is missing.
   */
  openAead(suite: number, seals: boolean, key: Uint8Array, iv: Uint8Array): number;
  /** Cleanses the key. The handle is invalid from now on; its number returns after some 2,000 others. */
  closeAead(aead: number): void;
  /** The ciphers of this thread that are open, for leak checks. */
  aeads(): number;
  /**
   * Seals `bytes` bytes in place. They follow `aadBytes` bytes that stay clear, at `at` of `memory`. Writes the tag of
   * 16 bytes after them. The nonce is the iv XOR `number` (0 … 2^53-1). Returns 0; -EINVAL (-22) for a number that is
   * not higher than the last one.
   */
  readonly sealMessage: MessageCipher;
  /** The reverse. Returns 0, or -EBADMSG (-74) for bytes that are not genuine, after writing zeros over them. */
  readonly openMessage: MessageCipher;
  /**
   * Seals `source` to `target`, of the same length: the same memory, or memory apart from it. Writes the tag (16 bytes).
   * Returns as `sealMessage`.
   */
  readonly sealPiece: PieceCipher;
  /** The reverse. Returns as `openMessage`; then `target` has zeros. */
  readonly openPiece: PieceCipher;
}

/** Seals or opens a message in place. */
export type MessageCipher = (
  aead: number,
  memory: Uint8Array,
  at: number,
  aadBytes: number,
  bytes: number,
  number: number,
) => number;

/** Seals or opens a piece from one memory to another. */
export type PieceCipher = (
  aead: number,
  number: number,
  aad: Uint8Array,
  source: Uint8Array,
  target: Uint8Array,
  tag: Uint8Array,
) => number;

/** Where OpenSSL's libcrypto was found. */
export interface LibcryptoReport {
  readonly loaded: boolean;
  /** The file that has it: mostly the node binary. "" if none. */
  readonly path: string;
  /** "OpenSSL 3.5.8 …"; "" if none. */
  readonly version: string;
  /** The places in turn; `reason` says why one was not used, and is empty for the one in use. */
  readonly tried: readonly { readonly path: string; readonly reason: string }[];
}
