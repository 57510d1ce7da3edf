import { Worker } from "node:worker_threads";

/** A power in a group: that of a new exponent to the base 2, or that of a known exponent to a value. */
export interface DhOrder {
  readonly prime: Buffer;
  readonly exponent?: Uint8Array;
  readonly value?: Uint8Array;
}

/** A power, and its exponent. Numbers are big-endian. */
export interface DhPower {
  readonly power: Uint8Array;
  readonly exponent: Uint8Array;
}

type Outcome = (DhPower & { readonly tookMs: number }) | { readonly error: string };

/** A computation that waits or runs. */
interface Job {
  readonly order: DhOrder;
  readonly settle: (outcome: Outcome) => void;
}

/** The program of the thread. It is a text, so that a bundle of the package needs no file for it. */
const program = `
const { createDiffieHellman } = require("node:crypto");
const { parentPort } = require("node:worker_threads");
parentPort.on("message", ({ prime, exponent, value }) => {
  const startedMs = performance.now();
  try {
    const own = createDiffieHellman(prime, 2);
    if (exponent === undefined) own.generateKeys();
    else own.setPrivateKey(exponent);
    const power = value === undefined ? own.getPublicKey() : own.computeSecret(value);
    parentPort.postMessage({ power, exponent: own.getPrivateKey(), tookMs: performance.now() - startedMs });
  } catch (error) {
    parentPort.postMessage({ error: error.message });
  }
});
`;

/** The thread rests three times as long as it has worked, so that it takes a quarter of a processor at most. */
const restShare = 3;
/** A thread without work ends after this time. */
const idleMs = 2000;

/**
 * Computes powers for the exchanges of keys, outside of the event loop: one of a large group takes milliseconds, and
 * strangers may ask for it. Hosts take turns, so that those who use the name of one do not keep the others waiting.
 */
class DhThread {
  readonly #waiting = new Map<string, Job[]>();
  #worker: Worker | undefined;
  #running: Job | undefined;
  #restsUntilMs = 0;
  #resting: NodeJS.Timeout | undefined;
  #idle: NodeJS.Timeout | undefined;

  /**
   * Computes a power.
   *
   * @param host the NQN of the host on whose behalf it is computed
   * @throws the signal's reason, where it is aborted. Error where the thread cannot be started.
   */
  compute(host: string, order: DhOrder, signal?: AbortSignal): Promise<DhPower> {
    return new Promise((resolve, reject) => {
      if (signal?.aborted) return reject(signal.reason);
      const onAbort = () => {
        const jobs = this.#waiting.get(host) ?? [];
        const others = jobs.filter((one) => one !== job);
        if (others.length > 0) this.#waiting.set(host, others);
        else this.#waiting.delete(host);
        reject(signal?.reason);
      };
      const job: Job = {
        order,
        settle: (outcome) => {
          signal?.removeEventListener("abort", onAbort);
          if ("error" in outcome) reject(new Error(outcome.error));
          else resolve(outcome);
        },
      };
      signal?.addEventListener("abort", onAbort, { once: true });
      const jobs = this.#waiting.get(host);
      if (jobs === undefined) this.#waiting.set(host, [job]);
      else jobs.push(job);
      this.#next();
    });
  }

  #next(): void {
    if (this.#running !== undefined || this.#resting !== undefined) return;
    const [turn] = this.#waiting;
    if (turn === undefined) return this.#beIdle();
    const restMs = this.#restsUntilMs - performance.now();
    if (restMs > 0) {
      this.#resting = setTimeout(() => {
        this.#resting = undefined;
        this.#next();
      }, restMs);
      return;
    }
    const [host, [job, ...others]] = turn;
    this.#waiting.delete(host);
    if (others.length > 0) this.#waiting.set(host, others);
    clearTimeout(this.#idle);
    this.#running = job;
    try {
      this.#worker ??= this.#start();
      this.#worker.ref();
      this.#worker.postMessage(job?.order);
    } catch (error) {
      this.#done({ error: (error as Error).message });
    }
  }

  #start(): Worker {
    // The process may run with flags under which the program is no CommonJS.
    const worker = new Worker(program, { eval: true, execArgv: [] });
    worker.on("message", (outcome: Outcome) => this.#done(outcome));
    worker.on("error", ({ message }) => {
      this.#worker = undefined;
      this.#done({ error: message });
    });
    return worker;
  }

  #done(outcome: Outcome): void {
    const job = this.#running;
    this.#running = undefined;
    this.#worker?.unref();
    this.#restsUntilMs = performance.now() + restShare * ("tookMs" in outcome ? outcome.tookMs : 0);
    job?.settle(outcome);
    this.#next();
  }

  #beIdle(): void {
    clearTimeout(this.#idle);
    this.#idle = setTimeout(() => {
      void this.#worker?.terminate();
      this.#worker = undefined;
    }, idleMs).unref();
  }
}

/** All exchanges of the process share one thread. */
export const dhThread = new DhThread();
