import { createHmac, randomBytes, timingSafeEqual } from "node:crypto";
import type { Clock } from "../../base/time/clock.ts";
import type { ReturnPath } from "../../wire/handshake.ts";
import { cookieBytes } from "./opening-message.ts";

/** Handshakes that may be open for one return address. */
export const mostForAddress = 16;
const minuteMs = 60_000;

/** What becomes of a hello: it is answered, must come again with a cookie, or is passed over. */
export type Admission = "answer" | "retry" | "full";

/**
 * The places of handshakes whose peers have not proven who they are. No provider tells who has sent a message, so whoever
 * reaches the port can say hello for any return address. While more than half of the places are taken, a hello must show a
 * cookie, which only whoever receives at the return address can have.
 */
export class HandshakePlaces {
  readonly #most: number;
  readonly #clock: Clock;
  readonly #secret = randomBytes(32);
  /** How many are taken for each return address that has any. */
  readonly #byAddress = new Map<string, number>();
  #taken = 0;

  constructor(most: number, clock: Clock) {
    this.#most = most;
    this.#clock = clock;
  }

  get taken(): number {
    return this.#taken;
  }

  admit(path: ReturnPath, cookie: Uint8Array | undefined): Admission {
    if (this.#taken * 2 > this.#most) {
      if (cookie === undefined || !this.#isOurs(path, cookie)) return "retry";
    }
    const ofAddress = this.#byAddress.get(keyOf(path)) ?? 0;
    return this.#taken < this.#most && ofAddress < mostForAddress ? "answer" : "full";
  }

  /** Takes a place. The returned function gives it back, once. */
  take(path: ReturnPath): () => void {
    const key = keyOf(path);
    this.#taken++;
    this.#byAddress.set(key, (this.#byAddress.get(key) ?? 0) + 1);
    let given = false;
    return () => {
      if (given) return;
      given = true;
      this.#taken--;
      const left = (this.#byAddress.get(key) ?? 1) - 1;
      if (left === 0) this.#byAddress.delete(key);
      else this.#byAddress.set(key, left);
    };
  }

  /** The cookie of a return path: good for this minute and the next. */
  cookieFor(path: ReturnPath): Buffer {
    return this.#cookie(path, Math.floor(this.#clock.now() / minuteMs));
  }

  #isOurs(path: ReturnPath, cookie: Uint8Array): boolean {
    const minute = Math.floor(this.#clock.now() / minuteMs);
    const ours = (age: number) => timingSafeEqual(this.#cookie(path, minute - age), cookie);
    return ours(0) || ours(1);
  }

  #cookie({ session, nonce, address, messageBytes }: ReturnPath, minute: number): Buffer {
    const fixed = Buffer.alloc(24);
    fixed.writeDoubleLE(minute, 0);
    fixed.writeBigUInt64LE(nonce, 8);
    fixed.writeUInt32LE(session, 16);
    fixed.writeUInt32LE(messageBytes, 20);
    const hmac = createHmac("sha256", this.#secret).update(fixed).update(address);
    return hmac.digest().subarray(0, cookieBytes);
  }
}

const keyOf = ({ address }: ReturnPath): string => Buffer.from(address).toString("latin1");
