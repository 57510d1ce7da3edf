import { createHmac, timingSafeEqual } from "node:crypto";

/** Bytes of the tag behind a message: HMAC-SHA-256, cut to half. */
export const tagBytes = 16;

/** Authenticates the messages of a group by its key. Messages are not secret. */
export class Seal {
  readonly #key: Uint8Array;

  constructor(key: Uint8Array) {
    this.#key = key;
  }

  close(message: Uint8Array): Uint8Array {
    return Buffer.concat([message, this.#tag(message)]);
  }

  /** The message; undefined where the tag is not that of this key. */
  open(bytes: Uint8Array): Uint8Array | undefined {
    if (bytes.length < tagBytes) return undefined;
    const message = bytes.subarray(0, bytes.length - tagBytes);
    return timingSafeEqual(this.#tag(message), bytes.subarray(message.length)) ? message : undefined;
  }

  #tag(message: Uint8Array): Uint8Array {
    return createHmac("sha256", this.#key).update(message).digest().subarray(0, tagBytes);
  }
}
