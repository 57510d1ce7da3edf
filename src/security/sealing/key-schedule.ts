import { createHmac } from "node:crypto";
import { Aead } from "./aead.ts";
import { ivBytes, keyBytes, type SuiteName } from "./suites.ts";

const hashBytes = 32;

/** HKDF-Expand of RFC 5869 with SHA-256: `bytes` bytes of the secret for the purpose that the label names. */
export function expand(secret: Uint8Array, label: string, bytes: number): Uint8Array {
  const blocks = Math.ceil(bytes / hashBytes);
  const output = new Uint8Array(blocks * hashBytes);
  for (let i = 0; i < blocks; i++) {
    const hmac = createHmac("sha256", secret);
    if (i > 0) hmac.update(output.subarray((i - 1) * hashBytes, i * hashBytes));
    const block = hmac
      .update(label)
      .update(Uint8Array.of(i + 1))
      .digest();
    output.set(block, i * hashBytes);
    block.fill(0);
  }
  return output.subarray(0, bytes);
}

/**
 * Keys derived from a secret, one link after the other. Each link has a key, an iv and the secret of the next link.
 * Only that secret is kept. Former links cannot be derived from it.
 */
export class KeyChain {
  readonly #suite: SuiteName;
  readonly #label: string;
  #secret: Uint8Array;

  /** The secret is copied. */
  constructor(suite: SuiteName, secret: Uint8Array, label: string) {
    this.#suite = suite;
    this.#label = label;
    this.#secret = Uint8Array.from(secret);
  }

  /** The cipher of the next link; the first time, of link 0. */
  next(direction: "seal" | "open"): Aead {
    const link = expand(this.#secret, this.#label, 2 * keyBytes + ivBytes);
    this.#secret.set(link.subarray(keyBytes + ivBytes));
    try {
      return Aead.create(
        this.#suite,
        direction,
        link.subarray(0, keyBytes),
        link.subarray(keyBytes, keyBytes + ivBytes),
      );
    } finally {
      new Uint8Array(link.buffer).fill(0);
    }
  }

  close(): void {
    this.#secret.fill(0);
  }
}

/** The ciphers of a chain for the sealing side: the current one only. */
export class SealingKeys {
  readonly #chain: KeyChain;
  #aead: Aead;
  #link: number;

  /** `link`: the number of the chain's first link. */
  constructor(chain: KeyChain, link: number) {
    this.#chain = chain;
    this.#link = link;
    this.#aead = chain.next("seal");
  }

  /** The cipher of a link, which is not before the link of the last call. */
  of(link: number): Aead {
    while (this.#link < link) {
      this.#aead.close();
      this.#aead = this.#chain.next("seal");
      this.#link++;
    }
    return this.#aead;
  }

  close(): void {
    this.#aead.close();
    this.#chain.close();
  }
}

/** How many links before the newest one are kept, and how many after it can be asked for. */
interface LinkBounds {
  readonly behind: number;
  readonly ahead: number;
}

/**
 * The ciphers of a chain for the opening side. Former links are forgotten only when a message has been opened with a
 * new one. Before that the new link is not proven.
 */
export class OpeningKeys {
  readonly #chain: KeyChain;
  readonly #bounds: LinkBounds;
  /** The ciphers from link `#first` on. */
  readonly #aeads: Aead[] = [];
  #first: number;
  /** The newest link that has opened a text. */
  #newest: number;
  #closed = false;

  /** `link`: the number of the chain's first link. */
  constructor(chain: KeyChain, bounds: LinkBounds, link: number) {
    this.#chain = chain;
    this.#bounds = bounds;
    this.#first = link;
    this.#newest = link;
  }

  /** Undefined for a link that is forgotten, or too far ahead. */
  of(link: number): Aead | undefined {
    if (this.#closed || link < this.#first || link > this.#newest + this.#bounds.ahead) return undefined;
    while (this.#first + this.#aeads.length <= link) this.#aeads.push(this.#chain.next("open"));
    return this.#aeads[link - this.#first];
  }

  /** A text of this link has been opened. */
  opened(link: number): void {
    if (link <= this.#newest) return;
    this.#newest = link;
    for (; this.#first < link - this.#bounds.behind; this.#first++) this.#aeads.shift()?.close();
  }

  close(): void {
    this.#closed = true;
    for (const aead of this.#aeads.splice(0)) aead.close();
    this.#chain.close();
  }
}
