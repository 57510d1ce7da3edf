import { RpcError } from "../../base/errors/rpc-error.ts";
import type { CryptoAddon } from "../../fabric/libfabric/crypto-addon.ts";
import { addonIfThere } from "../../fabric/libfabric/libfabric.ts";
import { NodeCrypto } from "./node-crypto.ts";
import { ivBytes, keyBytes, type SuiteName, suites } from "./suites.ts";

/**
 * One key in one direction: it seals or it opens, on the OpenSSL of the running node. The key lies in memory of the
 * library until `close`, which cleanses it. The nonce of a text is the iv XOR the text's number, a whole number up to
 * 2^53-1.
 */
export class Aead {
  readonly #library: CryptoAddon;
  /** -1: closed. The library refuses this handle. */
  #handle: number;

  private constructor(library: CryptoAddon, handle: number) {
    this.#library = library;
    this.#handle = handle;
  }

  /**
   * The key and the iv are copied: the caller fills them with zeros.
   * @throws RpcError `unavailable` where the library does not have the suite.
   */
  static create(
    suite: SuiteName,
    direction: "seal" | "open",
    key: Uint8Array,
    iv: Uint8Array,
    library = sealingLibrary(),
  ): Aead {
    if (key.byteLength !== keyBytes || iv.byteLength !== ivBytes)
      throw new RangeError(`a cipher takes a key of ${keyBytes} bytes and an iv of ${ivBytes}`);
    const handle = library.openAead(suites[suite], direction === "seal", key, iv);
    if (handle < 0) throw missing(`${library.libcrypto().version} has no ${suite}`);
    return new Aead(library, handle);
  }

  /**
   * Seals `bytes` bytes in place. They follow `aadBytes` bytes that stay clear, at `at` of `memory`. Writes the tag
   * after them. Throws for a number that is not higher than the last one, because no nonce may be used twice.
   */
  sealMessage(memory: Uint8Array, at: number, aadBytes: number, bytes: number, number: number): void {
    const status = this.#library.sealMessage(this.#handle, memory, at, aadBytes, bytes, number);
    if (status !== 0) throw this.#refused(number);
  }

  /** The reverse. False for a message that is not genuine; then the text is zeros. */
  openMessage(memory: Uint8Array, at: number, aadBytes: number, bytes: number, number: number): boolean {
    return this.#library.openMessage(this.#handle, memory, at, aadBytes, bytes, number) === 0;
  }

  /**
   * Seals `source` to `target`, of the same length: the same memory, or memory apart from it. `tag` takes 16 bytes.
   * Throws as `sealMessage`.
   */
  sealPiece(number: number, aad: Uint8Array, source: Uint8Array, target: Uint8Array, tag: Uint8Array): void {
    const status = this.#library.sealPiece(this.#handle, number, aad, source, target, tag);
    if (status !== 0) throw this.#refused(number);
  }

  /**
   * The reverse. False for a piece that is not genuine; then `target` is zeros. No other code may write to `source`.
   */
  openPiece(
    number: number,
    aad: Uint8Array,
    source: Uint8Array,
    target: Uint8Array,
    tag: Uint8Array,
  ): boolean {
    if (this.#library.openPiece(this.#handle, number, aad, source, target, tag) === 0) return true;
    target.fill(0);
    return false;
  }

  /**
   * Gives the native cipher to another part of the addon, which closes it. This object is closed from now on. -1 where
   * the cipher is not native: then it does not change.
   */
  release(): number {
    return this.#library instanceof NodeCrypto ? -1 : this.#taken();
  }

  close(): void {
    if (this.#handle >= 0) this.#library.closeAead(this.#taken());
  }

  #taken(): number {
    const handle = this.#handle;
    this.#handle = -1;
    return handle;
  }

  #refused(number: number): Error {
    if (this.#handle < 0) return new Error("the keys of this session are gone, as it has ended");
    return new RangeError(
      `nothing can be sealed as number ${number}: numbers rise and end at 2^53 - 1, and lengths must fit the memory`,
    );
  }
}

const nodeCrypto = new NodeCrypto();

/** The library that seals on this machine: the addon, or `node:crypto` without the addon or OpenSSL's libcrypto. */
export function sealingLibrary(): CryptoAddon {
  const addon = addonIfThere();
  return addon?.libcrypto().loaded ? addon : nodeCrypto;
}

function missing(reason: string): RpcError {
  return new RpcError({
    code: "unavailable",
    message: `sessions cannot be sealed: ${reason}. Let security.suites name a cipher that both sides have`,
    retryable: false,
  });
}
