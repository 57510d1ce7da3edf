import { offerBody } from "../bulk/overflow.ts";
import type { Loan } from "../call/outgoing-call.ts";
import type { Port } from "../fabric/port.ts";
import type { Counters } from "../observe/counters.ts";
import { EncodeError } from "../wire/codec.ts";
import type { Overflow } from "../wire/frame.ts";

/** Bodies kept for the peer to pull, until it says that it has. Rare and large, so a Map with readable keys will do. */
export class OfferedBodies {
  readonly #port: Port;
  readonly #counters: Counters;
  readonly #loans = new Map<string, Loan>();

  constructor(port: Port, counters: Counters) {
    this.#port = port;
    this.#counters = counters;
  }

  /** How many wait to be pulled. */
  get size(): number {
    return this.#loans.size;
  }

  /** Keeps `body` under `key`. Throws EncodeError when the peer would not take it. */
  offer(key: string, body: Uint8Array, limit: number): Overflow {
    if (body.byteLength > limit) {
      throw new EncodeError(`the body has ${body.byteLength} bytes, maxBodyBytes is ${limit}`);
    }
    const { overflow, loan } = offerBody(this.#port, body);
    this.#counters.bodiesOffered++;
    this.#loans.set(key, loan);
    return overflow;
  }

  has(key: string): boolean {
    return this.#loans.has(key);
  }

  released(key: string): void {
    this.#loans.get(key)?.release();
    this.#loans.delete(key);
  }

  end(): Loan[] {
    const loans = [...this.#loans.values()];
    this.#loans.clear();
    return loans;
  }
}
