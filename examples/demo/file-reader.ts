import { Worker } from "node:worker_threads";
import type { ReadRequest } from "./reader-thread.ts";
import type { Piece, PieceResult } from "./window.ts";

/** A thread that reads pieces of files below one folder, so that the thread of the server waits for no disk. */
export class FileReader implements AsyncDisposable {
  readonly #thread: Worker;
  /** The callbacks that wait for an answer, in the order of asking. */
  readonly #waiting: ((results: PieceResult[]) => void)[] = [];

  constructor(root: string) {
    this.#thread = new Worker(new URL("./reader-thread.js", import.meta.url), { workerData: root });
    this.#thread.on("message", (results: PieceResult[]) => this.#waiting.shift()?.(results));
  }

  /** Reads the pieces one behind the other into a buffer of shared memory. */
  read(pieces: readonly Piece[], buffer: Uint8Array): Promise<PieceResult[]> {
    return new Promise((resolve) => {
      this.#waiting.push(resolve);
      this.#thread.postMessage({ pieces, buffer } satisfies ReadRequest);
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#thread.terminate();
  }
}
