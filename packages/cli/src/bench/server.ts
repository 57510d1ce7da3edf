import { setTimeout as pause } from "node:timers/promises";
import {
  bulk,
  bytes,
  fields,
  Histogram,
  type Implementation,
  implement,
  type Pool,
  RpcError,
  type Schema,
  service,
  unary,
} from "cinnabar/standard";
import type { Draw } from "./distribution.ts";

/** The longest output that a caller can ask for. */
const maxBytes = 2 ** 30;

const number = (most: number): Schema<number> & { readonly "~standard": { readonly jsonSchema: object } } => {
  const json = () => ({ type: "number", minimum: 0, maximum: most });
  return {
    "~standard": {
      version: 1,
      vendor: "cinnabar",
      validate: (value) =>
        typeof value === "number" && value >= 0 && value <= most
          ? { value }
          : { issues: [{ message: `must be a number from 0 to ${most}` }] },
      jsonSchema: { input: json, output: json },
    },
  };
};

/** What `cinnabar bench serve` serves: a method for each way in which bytes can go. */
export const Bench = service("cinnabar-bench.v1", {
  /** Bytes in both directions, in messages. */
  echo: unary({ input: bytes(), output: bytes(), idempotent: true }),
  /** Bytes to the server, in messages. */
  take: unary({ input: bytes(), idempotent: true }),
  /** Bytes to the caller, in messages. */
  give: unary({ input: number(maxBytes), output: bytes(), idempotent: true }),
  /** Bytes to the server: it reads the caller's memory. */
  get: unary({ input: fields({ from: bulk("read") }), idempotent: true }),
  /** Bytes to the caller: the server writes its memory. */
  put: unary({ input: fields({ into: bulk("write") }), idempotent: true }),
  /** The processor time of the server's process, in microseconds. */
  cpu: unary({ output: number(Number.MAX_SAFE_INTEGER), idempotent: true }),
});

/** What the server does to calls. */
export interface Injection {
  /** How long a call waits before its answer, in milliseconds. Undefined: not at all. */
  readonly delayMs: Draw | undefined;
  /** The share of calls that fail, 0 to 1. */
  readonly failShare: number;
  readonly random: () => number;
}

/** Delays and fails calls, and keeps what it did. */
export class Injector {
  /** How long calls were really delayed, in milliseconds: a timer may be late. */
  readonly delayedMs = new Histogram();
  calls = 0;
  failed = 0;
  readonly #injection: Injection;
  readonly #sleep: (ms: number) => Promise<unknown>;
  readonly #nowMs: () => number;

  constructor(
    injection: Injection,
    sleep: (ms: number) => Promise<unknown> = pause,
    nowMs = () => performance.now(),
  ) {
    this.#injection = injection;
    this.#sleep = sleep;
    this.#nowMs = nowMs;
  }

  /** Waits as long as a call is to be delayed. @throws RpcError `aborted` for one that is to fail. */
  async inject(): Promise<void> {
    const { delayMs, failShare, random } = this.#injection;
    this.calls++;
    const isFailed = random() < failShare;
    if (isFailed) this.failed++;
    if (delayMs !== undefined) {
      const beforeMs = this.#nowMs();
      await this.#sleep(delayMs(random));
      this.delayedMs.record(this.#nowMs() - beforeMs);
    }
    if (isFailed) throw new RpcError({ code: "aborted", message: "failed as --fail asks" });
  }
}

/** Serves `Bench`. Bulk data goes through memory of the engine's pool. */
export function benchServer(injector: Injector, pool: Pool): Implementation {
  return implement(Bench, {
    async echo(content) {
      await injector.inject();
      return content;
    },
    async take() {
      await injector.inject();
    },
    async give(size) {
      await injector.inject();
      return Buffer.alloc(Math.round(size));
    },
    async get({ from }, call) {
      await injector.inject();
      await withMemory(pool, from.byteLength, (memory) => call.get(from, memory));
    },
    async put({ into }, call) {
      await injector.inject();
      await withMemory(pool, into.byteLength, (memory) => call.put(memory, into));
    },
    cpu: () => cpuUs(),
  });
}

async function withMemory(
  pool: Pool,
  bytes: number,
  move: (memory: Uint8Array) => Promise<unknown>,
): Promise<void> {
  const memory = pool.take(bytes, { zero: false });
  try {
    await move(memory.bytes);
  } finally {
    memory.dispose();
  }
}

/** Processor time of this process so far, in microseconds. */
export function cpuUs(): number {
  const { user, system } = process.cpuUsage();
  return user + system;
}
