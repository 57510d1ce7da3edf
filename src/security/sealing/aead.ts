import { RpcError } from "../../base/errors/rpc-error.ts";
import type { CryptoAddon } from "../../fabric/libfabric/crypto-addon.ts";
import { addonIfThere } from "../../fabric/libfabric/libfabric.ts";
import { ivBytes, keyBytes, type SuiteName, suites } from "./suites.ts";

/**
 * One key in one direction: it seals or it opens, on the OpenSSL of the running node. The key lies in native memory
 * until `close`, which cleanses it. The nonce of a text is the iv XOR the text's number, a whole number up to 2^53-1.
 */
export class Aead {
  readonly #addon: CryptoAddon;
  /** -1: closed. The addon refuses it. */
  #handle: number;

  private constructor(addon: CryptoAddon, handle: number) {
    this.#addon = addon;
    this.#handle = handle;
  }

  /**
   * The key and the iv are copied: the caller fills them with zeros.
   * @throws RpcError `unavailable` without the addon, or without a libcrypto that has the suite.
   */
  static create(suite: SuiteName, direction: "seal" | "open", key: Uint8Array, iv: Uint8Array): Aead {
    if (key.byteLength !== keyBytes || iv.byteLength !== ivBytes)
      throw new RangeError(`a cipher takes a key of ${keyBytes} bytes and an iv of ${ivBytes}`);
    const addon = cryptoAddon();
    const handle = addon.openAead(suites[suite], direction === "seal", key, iv);
    if (handle >= 0) return new Aead(addon, handle);
    const { loaded, version } = addon.libcrypto();
    throw missing(loaded ? `${version} has no ${suite}` : noLibcrypto(addon));
  }

  /**
   * Seals `bytes` bytes in place, behind `aadBytes` bytes that stay clear at `at` of `memory`, and writes the tag behind
   * them. Throws for a number that is not higher than the last one, because no nonce may be used twice.
   */
  sealMessage(memory: Uint8Array, at: number, aadBytes: number, bytes: number, number: number): void {
    const status = this.#addon.sealMessage(this.#handle, memory, at, aadBytes, bytes, number);
    if (status !== 0) throw this.#refused(number);
  }

  /** The reverse. False for what is not genuine, and then the text is zeros. */
  openMessage(memory: Uint8Array, at: number, aadBytes: number, bytes: number, number: number): boolean {
    return this.#addon.openMessage(this.#handle, memory, at, aadBytes, bytes, number) === 0;
  }

  /**
   * Seals `source` to `target`, of the same length: the same memory, or memory apart from it. `tag` takes 16 bytes.
   * Throws as `sealMessage`.
   */
  sealPiece(number: number, aad: Uint8Array, source: Uint8Array, target: Uint8Array, tag: Uint8Array): void {
    const status = this.#addon.sealPiece(this.#handle, number, aad, source, target, tag);
    if (status !== 0) throw this.#refused(number);
  }

  /** The reverse. False for what is not genuine, and then `target` is zeros. Nobody else may write to `source`. */
  openPiece(
    number: number,
    aad: Uint8Array,
    source: Uint8Array,
    target: Uint8Array,
    tag: Uint8Array,
  ): boolean {
    if (this.#addon.openPiece(this.#handle, number, aad, source, target, tag) === 0) return true;
    target.fill(0);
    return false;
  }

  /** Hands the native cipher to another part of the addon, which closes it. This one is closed from now on. */
  release(): number {
    const handle = this.#handle;
    this.#handle = -1;
    return handle;
  }

  close(): void {
    if (this.#handle >= 0) this.#addon.closeAead(this.release());
  }

  #refused(number: number): Error {
    if (this.#handle < 0) return new Error("the keys of this session are gone, as it has ended");
    return new RangeError(
      `nothing can be sealed as number ${number}: numbers rise and end at 2^53 - 1, and lengths must fit the memory`,
    );
  }
}

/** The addon, if it can seal. Throws `unavailable` with the reason where it cannot. */
export function cryptoAddon(): CryptoAddon {
  const addon = addonIfThere();
  if (addon === undefined) throw missing("Cinnabar's native addon was not found");
  if (!addon.libcrypto().loaded) throw missing(noLibcrypto(addon));
  return addon;
}

function noLibcrypto(addon: CryptoAddon): string {
  const tried = addon.libcrypto().tried.map(({ path, reason }) => `${path} (${reason})`);
  return `OpenSSL's libcrypto was not found; tried ${tried.join(", ")}`;
}

function missing(reason: string): RpcError {
  return new RpcError({
    code: "unavailable",
    message: `sessions cannot be sealed: ${reason}. Run Node's own builds, or install OpenSSL 3 (libcrypto.so.3)`,
    origin: "local",
    retryable: false,
  });
}
