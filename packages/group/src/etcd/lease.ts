import { setTimeout as pause } from "node:timers/promises";
import { RpcError } from "cinnabar/standard";
import type { EtcdGateway } from "./gateway.ts";
import { withTimeLimit } from "./time-limit.ts";

/** A lease of etcd: keys that belong to it go when it was not renewed for its time. */
export class Lease {
  readonly id: string;
  /** For how long it lasts without being renewed. etcd may choose another time than it was asked for. */
  readonly ttlMs: number;
  readonly #gateway: EtcdGateway;
  #renewedAtMs: number;

  static async grant(gateway: EtcdGateway, ttlMs: number, signal: AbortSignal): Promise<Lease> {
    const askedAtMs = performance.now();
    const { ID, TTL } = await gateway.call(
      "/v3/lease/grant",
      { TTL: String(Math.ceil(ttlMs / 1000)) },
      signal,
    );
    return new Lease(gateway, String(ID), Number(TTL) * 1000, askedAtMs);
  }

  private constructor(gateway: EtcdGateway, id: string, ttlMs: number, renewedAtMs: number) {
    this.#gateway = gateway;
    this.id = id;
    this.ttlMs = ttlMs;
    this.#renewedAtMs = renewedAtMs;
  }

  /** For how long it surely lasts. The time counts from when a renewal was asked for. 0 or less: it may have ended. */
  get remainingMs(): number {
    return this.#renewedAtMs + this.ttlMs - performance.now();
  }

  /**
   * Renews it three times in its time, until it has ended or `signal` aborts.
   *
   * @param onOverdue called when the lease may have ended because etcd was not reached, once for each outage
   * @returns when etcd reports that the lease has ended
   * @throws the reason of `signal`; RpcError for what etcd refuses
   */
  async keep(signal: AbortSignal, onOverdue: () => void): Promise<void> {
    let failures = 0;
    // A timer of its own: a request may still wait for an answer when the lease ends.
    let overdue = setTimeout(onOverdue, this.remainingMs);
    try {
      for (;;) {
        await pause(this.ttlMs / (failures > 0 ? 10 : 3), undefined, { signal });
        const askedAtMs = performance.now();
        try {
          const { TTL } = await withTimeLimit(this.ttlMs / 3, [signal], (soon) =>
            this.#gateway.call("/v3/lease/keepalive", { ID: this.id }, soon),
          );
          if (!(Number(TTL) > 0)) return;
          this.#renewedAtMs = askedAtMs;
          failures = 0;
          clearTimeout(overdue);
          overdue = setTimeout(onOverdue, this.remainingMs);
        } catch (error) {
          signal.throwIfAborted();
          if (!(error instanceof RpcError && error.code === "unavailable")) throw error;
          failures += 1;
        }
      }
    } finally {
      clearTimeout(overdue);
    }
  }

  async revoke(signal: AbortSignal): Promise<void> {
    await this.#gateway.call("/v3/lease/revoke", { ID: this.id }, signal);
  }
}
