import { createHmac, randomBytes, timingSafeEqual } from "node:crypto";
import type { Clock } from "../../base/time/clock.ts";
import { networkOfAddress } from "../../fabric/host.ts";
import type { ReturnPath } from "../../wire/handshake.ts";
import { cookieBytes } from "../../wire/hello.ts";

/** The most open handshakes for one return address. */
export const mostForAddress = 16;
/** The most hellos that wait for a place, one for each return address. */
export const mostWaiting = 256;
/** A handshake keeps its place for this long, in milliseconds, while other hellos of its host wait. */
export const leastStayMs = 1000;
const minuteMs = 60_000;

/** A hello is answered, must come again with a cookie, may wait for a place, or is dropped. */
type HelloVerdict = "answer" | "retry" | "wait" | "full";

/** The place of a handshake. */
interface HandshakePlace {
  readonly address: string;
  readonly host: string;
  /** The hello came with a cookie, so the peer receives at its return address. */
  readonly proven: boolean;
  readonly sinceMs: number;
  /** Ends the handshake, which gives the place back. */
  readonly evict: () => void;
}

/** A hello with a cookie that waits for a place. */
interface WaitingHandshake {
  readonly host: string;
  readonly sinceMs: number;
  readonly accept: () => void;
}

/**
 * The places of handshakes with unproven peers.
 *
 * No provider identifies the sender of a message, so any host can send a hello for any return address. While more than
 * half of the places are taken, a hello must show a cookie. Only a peer that receives at the return address can have
 * it.
 *
 * Places are counted by host: an IPv4 address, or the /64 network of an IPv6 address. When all are taken, a hello with
 * a cookie waits. The host with the fewest places goes first. It gets the oldest place of the host with the most
 * places: at once if that host has at least two more, otherwise when the place is `leastStayMs` old. Handshakes without
 * a cookie go before all others.
 */
export class HandshakePlaces {
  readonly #most: number;
  readonly #stayLimitMs: number;
  readonly #clock: Clock;
  readonly #secret = randomBytes(32);
  /** By host, oldest first. */
  readonly #byHost = new Map<string, Set<HandshakePlace>>();
  readonly #byAddress = new Map<string, number>();
  /** By return address, oldest first. */
  readonly #waiting = new Map<string, WaitingHandshake>();
  #taken = 0;
  #isServing = false;
  #cancelTimer: (() => void) | undefined;

  /** `stayLimitMs`: the longest wait of a hello before it is dropped. */
  constructor(most: number, stayLimitMs: number, clock: Clock) {
    this.#most = most;
    this.#stayLimitMs = stayLimitMs;
    this.#clock = clock;
  }

  get taken(): number {
    return this.#taken;
  }

  /** The number of hellos that wait for a place. */
  get waiting(): number {
    return this.#waiting.size;
  }

  admit(path: ReturnPath, cookie: Uint8Array | undefined): HelloVerdict {
    const proven = this.isProven(path, cookie);
    if (this.#taken * 2 > this.#most && !proven) return "retry";
    if ((this.#byAddress.get(keyOf(path)) ?? 0) >= mostForAddress) return "full";
    if (this.#taken < this.#most && this.#waiting.size === 0) return "answer";
    return proven ? "wait" : "retry";
  }

  /** Whether the cookie belongs to the return path. */
  isProven(path: ReturnPath, cookie: Uint8Array | undefined): boolean {
    if (cookie === undefined) return false;
    const minute = Math.floor(this.#clock.now() / minuteMs);
    const ours = (age: number) => timingSafeEqual(this.#cookie(path, minute - age), cookie);
    return ours(0) || ours(1);
  }

  /**
   * Lets a hello with a cookie wait. `accept` takes a place, now or later. A later hello from the same return address
   * replaces it and keeps its turn. Returns false when a hello had to be dropped.
   */
  wait(path: ReturnPath, accept: () => void): boolean {
    const host = networkOfAddress(path.address);
    const key = keyOf(path);
    const fits = this.#waiting.has(key) || this.#waiting.size < mostWaiting || this.#dropFor(host);
    if (fits) this.#waiting.set(key, { host, sinceMs: this.#clock.now(), accept });
    this.#serve();
    return fits;
  }

  /** Takes a place. The returned function gives it back, once. */
  take(path: ReturnPath, proven: boolean, evict: () => void): () => void {
    const place = {
      address: keyOf(path),
      host: networkOfAddress(path.address),
      proven,
      sinceMs: this.#clock.now(),
      evict,
    };
    const { address, host } = place;
    const ofHost = this.#byHost.get(host);
    if (ofHost === undefined) this.#byHost.set(host, new Set([place]));
    else ofHost.add(place);
    this.#byAddress.set(address, (this.#byAddress.get(address) ?? 0) + 1);
    this.#taken++;
    return () => this.#give(place);
  }

  /** The cookie of a return path: valid in this minute and the next. */
  cookieFor(path: ReturnPath): Buffer {
    return this.#cookie(path, Math.floor(this.#clock.now() / minuteMs));
  }

  close(): void {
    this.#waiting.clear();
    this.#cancelTimer?.();
  }

  #give(place: HandshakePlace): void {
    const { host, address } = place;
    const ofHost = this.#byHost.get(host);
    if (ofHost?.delete(place) !== true) return;
    if (ofHost.size === 0) this.#byHost.delete(host);
    const left = (this.#byAddress.get(address) ?? 1) - 1;
    if (left === 0) this.#byAddress.delete(address);
    else this.#byAddress.set(address, left);
    this.#taken--;
    this.#serve();
  }

  /** Gives free places to the waiting hellos. */
  #serve(): void {
    if (this.#isServing || this.#waiting.size === 0) return;
    this.#isServing = true;
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
    const nowMs = this.#clock.now();
    for (let next = this.#next(nowMs); next !== undefined; next = this.#next(nowMs)) {
      const [address, { host, accept }] = next;
      const waitMs = this.#makeRoom(host, nowMs);
      if (waitMs > 0) {
        this.#cancelTimer = this.#clock.timer(Math.ceil(waitMs), () => this.#serve(), true);
        break;
      }
      this.#waiting.delete(address);
      accept();
    }
    this.#isServing = false;
  }

  /** The next hello: the oldest of the host with the fewest places. */
  #next(nowMs: number): [string, WaitingHandshake] | undefined {
    let next: [string, WaitingHandshake] | undefined;
    let fewest = Number.POSITIVE_INFINITY;
    for (const entry of this.#waiting) {
      const [address, { host, sinceMs }] = entry;
      const held = this.#held(host);
      if (nowMs - sinceMs >= this.#stayLimitMs) this.#waiting.delete(address);
      else if (held < fewest) {
        fewest = held;
        next = entry;
      }
    }
    return next;
  }

  /** Makes a place free for the host. Returns 0, or the time in milliseconds until a place can be free. */
  #makeRoom(host: string, nowMs: number): number {
    if (this.#taken < this.#most) return 0;
    let largest: Set<HandshakePlace> = new Set();
    for (const places of this.#byHost.values()) if (places.size > largest.size) largest = places;
    const victim = [...largest].find(({ proven }) => !proven) ?? [...largest][0];
    if (victim === undefined) return leastStayMs;
    const mayEvict = !victim.proven || this.#held(host) + 2 <= largest.size;
    const waitMs = mayEvict ? 0 : victim.sinceMs + leastStayMs - nowMs;
    if (waitMs <= 0) victim.evict();
    return Math.max(0, waitMs);
  }

  /** Drops the newest waiting hello of the host with the most waiting hellos, if it has more than `host`. */
  #dropFor(host: string): boolean {
    const counts = new Map<string, number>();
    for (const waiting of this.#waiting.values())
      counts.set(waiting.host, (counts.get(waiting.host) ?? 0) + 1);
    const [largest, most] = [...counts].reduce((a, b) => (b[1] > a[1] ? b : a));
    if ((counts.get(host) ?? 0) + 1 >= most) return false;
    const newest = [...this.#waiting].findLast(([, waiting]) => waiting.host === largest);
    return newest !== undefined && this.#waiting.delete(newest[0]);
  }

  #held(host: string): number {
    return this.#byHost.get(host)?.size ?? 0;
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
