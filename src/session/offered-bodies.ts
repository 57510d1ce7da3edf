import { offerBody } from "../bulk/overflow.ts";
import type { Loan } from "../call/outgoing-call.ts";
import { RpcError } from "../errors/rpc-error.ts";
import type { Port } from "../fabric/port.ts";
import { EncodeError } from "../wire/codec.ts";
import type { Overflow } from "../wire/frame.ts";
import type { SessionHost } from "./session-host.ts";

/** Whose body is kept: the session's own, a request's, or the answer in a slot. A number, because every call asks whether one of its own is. */
export const sessionBody = -1;
export const requestBody = (callId: number): number => 2 * callId;
export const answerBody = (slot: number): number => 2 * slot + 1;

/** Bodies kept for the peer to pull, until it says that it has. Rare and large, so a Map will do. */
export class OfferedBodies {
  readonly #port: Port;
  readonly #host: SessionHost;
  readonly #loans = new Map<number, Loan>();

  constructor(port: Port, host: SessionHost) {
    this.#port = port;
    this.#host = host;
  }

  /** How many wait to be pulled. */
  get size(): number {
    return this.#loans.size;
  }

  /** Keeps `body` under `key`. Throws EncodeError when the peer would not take it, RpcError `resource_exhausted` when too much is kept already. */
  offer(key: number, body: Uint8Array, limit: number): Overflow {
    if (body.byteLength > limit) {
      throw new EncodeError(`the body has ${body.byteLength} bytes, maxBodyBytes is ${limit}`);
    }
    const { offerBudget, counters, limits } = this.#host;
    const bytes = body.byteLength;
    if (!offerBudget.take(bytes)) {
      throw new RpcError({
        code: "resource_exhausted",
        message: `${offerBudget.bytes} bytes wait to be pulled, ${bytes} more would exceed maxOfferBytes ${limits.maxOfferBytes}`,
        origin: "local",
      });
    }
    try {
      const { overflow, loan } = offerBody(this.#port, body);
      counters.bodiesOffered++;
      const release = (onReleased?: () => void) => {
        loan.release(() => {
          offerBudget.give(bytes);
          onReleased?.();
        });
      };
      this.#loans.set(key, { bytes, release });
      return overflow;
    } catch (error) {
      offerBudget.give(bytes);
      throw error;
    }
  }

  has(key: number): boolean {
    return this.#loans.size > 0 && this.#loans.has(key);
  }

  released(key: number): void {
    if (this.#loans.size === 0) return;
    this.#loans.get(key)?.release();
    this.#loans.delete(key);
  }

  end(): Loan[] {
    const loans = [...this.#loans.values()];
    this.#loans.clear();
    return loans;
  }
}
