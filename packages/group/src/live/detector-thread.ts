import { type EventEmitter, once } from "node:events";
import type { DetectorEvent } from "../detector/detector.ts";
import type { MemberId } from "../detector/message.ts";
import type { Member } from "../detector/opinions.ts";
import type { ResolvedOptions } from "../detector/options.ts";
import type { LiveStats } from "./driver.ts";

/** What the thread of a detector is started with. */
export interface Orders {
  readonly self: MemberId;
  readonly members: readonly Member[];
  readonly group: number;
  readonly detector: ResolvedOptions;
  readonly stalledAfterMs: number;
  readonly key: Uint8Array | undefined;
}

/** To the thread. `here` answers `are-you-there` with its number: the main thread runs. */
export type Request =
  | { readonly kind: "here"; readonly number: number }
  | { readonly kind: "adopt"; readonly members: readonly Member[] }
  | { readonly kind: "stats" }
  | { readonly kind: "leave" }
  | { readonly kind: "close" };

/** From the thread. */
export type Notice =
  | { readonly kind: "ready" }
  | { readonly kind: "failed"; readonly message: string }
  | { readonly kind: "are-you-there"; readonly number: number }
  | { readonly kind: "event"; readonly event: DetectorEvent }
  | { readonly kind: "stats"; readonly stats: LiveStats }
  | { readonly kind: "left" };

/** What is used of a worker thread. */
interface ThreadPort extends EventEmitter {
  postMessage(request: Request): void;
  ref(): void;
  unref(): void;
}

interface Waiting {
  readonly kind: Notice["kind"];
  resolve(notice: Notice): void;
  reject(error: Error): void;
}

/**
 * The thread of a detector, as the main thread has it. It keeps the process alive only while a caller waits for it. An
 * error of the thread is an uncaught exception of the process, as in Node: no method could report it.
 */
export class DetectorThread {
  readonly #worker: ThreadPort;
  readonly #onNotice: (notice: Notice) => void;
  /** Questions that wait for an answer. Empty once the thread has ended. */
  readonly #waiting = new Set<Waiting>();
  readonly #exited: Promise<void>;
  #hasExited = false;
  #isClosing = false;

  /**
   * Resolves when the thread is ready. Rejects with the thread's error or refusal, and when it ends without a message.
   */
  static async ready(worker: ThreadPort): Promise<void> {
    const ended = new AbortController();
    const onExit = () => ended.abort();
    worker.once("exit", onExit);
    try {
      const [notice] = (await once(worker, "message", ended)) as [Notice];
      if (notice.kind !== "ready")
        throw new Error(
          `failure detector: it cannot start: ${notice.kind === "failed" ? notice.message : notice.kind}`,
        );
    } catch (error) {
      throw ended.signal.aborted
        ? new Error("failure detector: its thread ended before it was ready")
        : error;
    } finally {
      worker.off("exit", onExit);
    }
  }

  /** `worker` is ready. `onNotice` gets every message of the thread. */
  constructor(worker: ThreadPort, onNotice: (notice: Notice) => void) {
    this.#worker = worker;
    this.#onNotice = onNotice;
    worker.unref();
    worker.on("message", (notice: Notice) => this.#take(notice));
    this.#exited = new Promise((resolve) =>
      worker.once("exit", () => {
        this.#onExit();
        resolve();
      }),
    );
  }

  tell(request: Request): void {
    this.#worker.postMessage(request);
  }

  /** Asks, and gives the next notice of that kind. Rejects when the thread has ended, or ends before. */
  ask<K extends Notice["kind"]>(request: Request, kind: K): Promise<Notice & { kind: K }> {
    if (this.#hasExited) return Promise.reject(closed());
    this.tell(request);
    this.#worker.ref();
    return new Promise((resolve, reject) => {
      this.#waiting.add({ kind, resolve: resolve as Waiting["resolve"], reject });
    });
  }

  /** Ends the thread without a goodbye. */
  async close(): Promise<void> {
    this.#isClosing = true;
    this.#worker.ref();
    this.tell({ kind: "close" });
    await this.#exited;
  }

  #take(notice: Notice): void {
    for (const waiting of this.#waiting) {
      if (waiting.kind !== notice.kind) continue;
      this.#waiting.delete(waiting);
      waiting.resolve(notice);
    }
    if (this.#waiting.size === 0 && !this.#isClosing) this.#worker.unref();
    this.#onNotice(notice);
  }

  #onExit(): void {
    this.#hasExited = true;
    for (const { reject } of this.#waiting) reject(closed());
    this.#waiting.clear();
  }
}

const closed = (): Error => new Error("failure detector: it is closed");

/** Finds out whether the main thread answers, by asking it. */
export class MainThreadWatch {
  readonly #stalledAfterMs: number;
  readonly #ask: (number: number) => void;
  #asked = 0;
  #answered = 0;
  #askedMs = 0;

  /** @param ask sends a number to the main thread, which sends it back */
  constructor(stalledAfterMs: number, ask: (number: number) => void) {
    this.#stalledAfterMs = stalledAfterMs;
    this.#ask = ask;
  }

  onAnswer(number: number): void {
    this.#answered = number;
  }

  /** @returns whether the main thread stands still. @param awakeMs time in which this process ran */
  check(awakeMs: number): boolean {
    if (this.#asked !== this.#answered) return awakeMs - this.#askedMs > this.#stalledAfterMs;
    this.#asked += 1;
    this.#askedMs = awakeMs;
    this.#ask(this.#asked);
    return false;
  }
}
