import { Worker } from "node:worker_threads";

/** A power in a group: that of a new exponent to the base 2, or that of a known exponent to a value. */
export type DhOrder = { readonly prime: Buffer } | { readonly key: Uint8Array; readonly value: Uint8Array };

/** A power, big-endian, and its exponent as a private key in PKCS #8. The power is empty where the value is invalid. */
export interface DhPower {
  readonly power: Uint8Array;
  readonly key: Uint8Array;
}

type Outcome = (DhPower & { readonly tookMs: number }) | { readonly error: string };

/** A computation that waits or runs. */
interface Job {
  readonly order: DhOrder;
  readonly settle: (outcome: Outcome) => void;
}

/**
 * The program of the thread. It is a text, so that a bundle of the package needs no file for it.
 *
 * It does without `createDiffieHellman`, which looks from Node 24 on whether the number is a prime: twelve seconds for
 * 6144 bits. Keys as objects go without that. Public values are in them as SubjectPublicKeyInfo: a SEQUENCE of the
 * group, which is a SEQUENCE, and of a BIT STRING that has an INTEGER.
 */
const program = `
const { createPrivateKey, createPublicKey, diffieHellman, generateKeyPairSync } = require("node:crypto");
const { parentPort } = require("node:worker_threads");

/** The contents of the item of DER that begins at \`at\`, and where it ends. */
function itemAt(der, at) {
  const long = der[at + 1] > 127 ? der[at + 1] - 128 : 0;
  const start = at + 2 + long;
  const end = start + (long === 0 ? der[at + 1] : der.readUIntBE(at + 2, long));
  return { contents: der.subarray(start, end), end };
}

function itemOf(tag, ...contents) {
  const bytes = Buffer.concat(contents);
  return Buffer.concat([Buffer.from([tag, 0x82, bytes.length >> 8, bytes.length & 255]), bytes]);
}

const groupOf = (spki) => spki.subarray(0, itemAt(spki, 0).end);

function valueOf(publicKey) {
  const { contents: spki } = itemAt(publicKey.export({ type: "spki", format: "der" }), 0);
  const { contents: bits } = itemAt(spki, itemAt(spki, 0).end);
  const { contents: number } = itemAt(bits, 1);
  return number[0] === 0 ? number.subarray(1) : number;
}

function publicKeyOf(value, own) {
  const { contents: spki } = itemAt(createPublicKey(own).export({ type: "spki", format: "der" }), 0);
  const first = value.findIndex((byte) => byte !== 0);
  const number = Buffer.concat([Buffer.alloc(value[first] > 127 ? 1 : 0), value.subarray(first)]);
  const key = itemOf(0x30, groupOf(spki), itemOf(0x03, Buffer.alloc(1), itemOf(0x02, number)));
  return createPublicKey({ key, type: "spki", format: "der" });
}

function powerOf({ prime, key, value }) {
  if (key === undefined) {
    const { publicKey, privateKey } = generateKeyPairSync("dh", { prime, generator: 2 });
    return { power: valueOf(publicKey), key: privateKey.export({ type: "pkcs8", format: "der" }) };
  }
  const privateKey = createPrivateKey({ key: Buffer.from(key), type: "pkcs8", format: "der" });
  try {
    return { power: diffieHellman({ privateKey, publicKey: publicKeyOf(value, privateKey) }), key };
  } catch (error) {
    if (error.code !== "ERR_OSSL_DH_CHECK_PUBKEY_INVALID") throw error;
    return { power: Buffer.alloc(0), key };
  }
}

parentPort.on("message", (order) => {
  const startedMs = performance.now();
  try {
    parentPort.postMessage({ ...powerOf(order), tookMs: performance.now() - startedMs });
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
