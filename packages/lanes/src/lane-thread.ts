import { Worker } from "node:worker_threads";
import { RpcError } from "cinnabar/standard";
import type { LaneCredentials } from "./lane-security.ts";
import type { LaneAnswers, LaneListening, LaneMessage, LaneOrders } from "./messages.ts";
import { toldError } from "./messages.ts";
import type { LanesOptions } from "./options.ts";
import { workerFile } from "./worker-file.ts";

/** How a thread has ended. */
export interface ThreadEnd {
  readonly exitCode: number;
  /** What it threw, or why it never came to serve. */
  readonly error: Error | undefined;
}

interface Asked {
  resolve(value: unknown): void;
  reject(error: Error): void;
}

/**
 * One thread of a lane, from its start to its end. When `ended` settles, the thread and its engine are gone for
 * certain: the addon closes what is still open.
 */
export class LaneThread {
  /** Where it listens. Rejects when it cannot start to serve; the thread then ends. */
  readonly listening: Promise<LaneListening>;
  readonly ended: Promise<ThreadEnd>;
  readonly #worker: Worker;
  readonly #name: string;
  readonly #asked = new Map<number, Asked>();
  #asks = 0;
  readonly #stats = new Map<boolean, Promise<LaneAnswers["stats"]>>();
  #isOver: Error | undefined;
  #error: Error | undefined;
  #onListening!: (listening: LaneListening) => void;
  #onFailed!: (error: Error) => void;
  #cancelTimer: () => void;

  /**
   * @throws DataCloneError when `orders.data` cannot be cloned. RpcError `failed_precondition` where the file of the
   * thread is missing.
   */
  constructor(orders: LaneOrders, resourceLimits: LanesOptions["resourceLimits"], startTimeoutMs: number) {
    this.#name = `lane ${orders.lane}`;
    this.#worker = new Worker(workerFile(), {
      workerData: orders,
      name: `cinnabar ${this.#name}`,
      ...(resourceLimits === undefined ? {} : { resourceLimits }),
    });
    this.listening = new Promise((resolve, reject) => {
      this.#onListening = resolve;
      this.#onFailed = reject;
    });
    this.listening.catch(() => {});
    const tooLate = () => this.#fail(startsTooLong(this.#name, orders.module, startTimeoutMs));
    const timer = setTimeout(tooLate, startTimeoutMs);
    this.#cancelTimer = () => clearTimeout(timer);
    this.#worker.on("message", (message: LaneMessage) => this.#onMessage(message));
    this.#worker.on("error", (error: unknown) => {
      this.#error ??= error instanceof Error ? error : new Error(String(error));
    });
    this.ended = new Promise((resolve) => {
      this.#worker.once("exit", (exitCode) => {
        this.#onExit(exitCode);
        resolve({ exitCode, error: this.#error });
      });
    });
  }

  /** What the thread answers; rejects when it ends without an answer. */
  ask<A extends keyof LaneAnswers>(
    ask: A,
    input: {
      readonly graceMs?: number;
      readonly security?: LaneCredentials;
      readonly histograms?: boolean;
    } = {},
  ): Promise<LaneAnswers[A]> {
    const id = ++this.#asks;
    return new Promise((resolve, reject) => {
      if (this.#isOver !== undefined) return reject(this.#isOver);
      this.#asked.set(id, { resolve: resolve as Asked["resolve"], reject });
      this.#worker.postMessage({ id, ask, ...input });
    });
  }

  /** What its engine holds. Requests made while the thread computes share one answer. */
  stats(histograms: boolean): Promise<LaneAnswers["stats"]> {
    let stats = this.#stats.get(histograms);
    if (stats === undefined) {
      stats = this.ask("stats", { histograms }).finally(() => this.#stats.delete(histograms));
      this.#stats.set(histograms, stats);
    }
    return stats;
  }

  /** Ends it wherever it stands. */
  terminate(): void {
    void this.#worker.terminate();
  }

  #onMessage(message: LaneMessage): void {
    switch (message.said) {
      case "listening":
        this.#cancelTimer();
        return this.#onListening({ urls: message.urls, incarnation: message.incarnation });
      case "failed":
        return this.#fail(toldError(message.error));
      case "answer":
      case "refused": {
        const asked = this.#asked.get(message.id);
        this.#asked.delete(message.id);
        if (message.said === "answer") asked?.resolve(message.value);
        else asked?.reject(toldError(message.error));
      }
    }
  }

  #fail(error: Error): void {
    this.#error ??= error;
    this.terminate();
  }

  #onExit(exitCode: number): void {
    this.#cancelTimer();
    const error = this.#error ?? threadEnded(this.#name, exitCode);
    this.#isOver = error;
    this.#onFailed(error);
    for (const { reject } of this.#asked.values()) reject(error);
    this.#asked.clear();
  }
}

/** The error for a thread, or a dispatcher, that took too long to start. */
export function startsTooLong(who: string, module: string, startTimeoutMs: number): RpcError {
  return new RpcError({
    code: "deadline_exceeded",
    message: `${who} did not start to serve within ${startTimeoutMs} ms: ${module} takes too long to load or to make its services`,
  });
}

function threadEnded(name: string, exitCode: number): RpcError {
  return new RpcError({
    code: "unavailable",
    message: `the thread of ${name} exited with code ${exitCode}`,
  });
}
