import { RpcError } from "../errors/rpc-error.ts";

/** A put into this region that asked for its owner to be told. */
export interface Notice {
  /** The number that the put gave. */
  readonly n: number;
  /** How many bytes it put. They are in place. */
  readonly bytes: number;
}

/** How many notices wait for a reader; beyond that they are refused or, where the sender cannot be told, lost. */
export const maxNotices = 1024;

type Result = IteratorResult<Notice, undefined>;
const over: Result = { done: true, value: undefined };

/** Where notices are missing whose senders take them for told. */
const gap = Symbol("gap");

/** Who waits for the next one. */
interface Asked {
  resolve(result: Result): void;
  reject(error: RpcError): void;
}

/** The notices of one region, in the order in which they came, for one reader at a time. */
export class NoticeQueue {
  #waiting: (Notice | typeof gap)[] = [];
  #asked: Asked[] = [];
  #reader: object | undefined;
  #closed = false;

  get hasReader(): boolean {
    return this.#reader !== undefined;
  }

  /** False when too many wait already, or nobody will ever read them. */
  push(notice: Notice): boolean {
    if (this.#closed) return false;
    const asked = this.#asked.shift();
    if (asked !== undefined) asked.resolve({ done: false, value: notice });
    else if (this.#waiting.length < maxNotices) this.#waiting.push(notice);
    else return false;
    return true;
  }

  /** One was lost, and its sender cannot be told: the reader hears of it when it has read what came before. */
  lose(): void {
    if (this.#closed) return;
    const asked = this.#asked.shift();
    if (asked !== undefined) {
      this.#detach();
      asked.reject(lost());
    } else if (this.#waiting.at(-1) !== gap) this.#waiting.push(gap);
  }

  /**
   * What `for await` reads. Leaving the loop detaches it, and so does an error; what has not been read then stays for the next reader. The iterator
   * rejects with `resource_exhausted` where notices were lost.
   *
   * @throws RpcError `failed_precondition` while there is another reader.
   */
  read(): AsyncIterableIterator<Notice, undefined> {
    if (this.#reader !== undefined) {
      throw new RpcError({
        code: "failed_precondition",
        message: "somebody reads this region's notifications already",
        origin: "local",
      });
    }
    const reader: AsyncIterableIterator<Notice, undefined> = {
      next: () => (this.#reader === reader ? this.#next() : Promise.resolve(over)),
      return: () => {
        if (this.#reader === reader) this.#detach();
        return Promise.resolve(over);
      },
      [Symbol.asyncIterator]: () => reader,
    };
    this.#reader = reader;
    return reader;
  }

  /** No more come: the reader gets what waits, and then the end. */
  close(): void {
    this.#closed = true;
    if (this.#asked.length > 0) this.#detach();
  }

  #next(): Promise<Result> {
    const value = this.#waiting.shift();
    if (value === gap) {
      this.#detach();
      return Promise.reject(lost());
    }
    if (value !== undefined) return Promise.resolve({ done: false, value });
    if (this.#closed) {
      this.#detach();
      return Promise.resolve(over);
    }
    return new Promise((resolve, reject) => this.#asked.push({ resolve, reject }));
  }

  #detach(): void {
    this.#reader = undefined;
    const asked = this.#asked;
    this.#asked = [];
    for (const { resolve } of asked) resolve(over);
  }
}

function lost(): RpcError {
  return new RpcError({
    code: "resource_exhausted",
    message: `notices were lost: more than ${maxNotices} of the region waited to be read, or it was not certain that they were its`,
    origin: "local",
  });
}
