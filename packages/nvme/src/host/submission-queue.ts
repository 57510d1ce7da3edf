/** A command that a host gives to a queue. */
export interface HostCommand {
  /** The entry. The queue fills in identifier and SGL. */
  readonly entry: Buffer;
  /** Data for the controller. */
  readonly fromHost?: Uint8Array;
  /** The buffer that the controller's data fill. */
  readonly toHost?: Uint8Array;
  /** The second command of a fused operation, which is sent right behind this one. It has data of the same length. */
  readonly second?: HostCommand;
  /** The command, a request for events, may wait for its answer without a limit. */
  readonly isPatient?: boolean;
}

/** What a controller answers. */
export interface Answer {
  /** Type in bits 8 to 10, code in bits 0 to 7. */
  readonly status: number;
  readonly doNotRetry: boolean;
  /** The command's own result. */
  readonly result: bigint;
  /** What it answers to the second command of a fused operation. */
  readonly second?: Answer;
}

/** The answer in a completion of 16 bytes. */
export function answerAt(bytes: Buffer, at = 0): Answer {
  const field = bytes.readUInt16LE(at + 14);
  const hasResult = bytes.readUInt32LE(at) !== 0 || bytes.readUInt32LE(at + 4) !== 0;
  return {
    status: (field >>> 1) & 0x7ff,
    doNotRetry: (field & 0x8000) !== 0,
    result: hasResult ? bytes.readBigUInt64LE(at) : 0n,
  };
}

/** The host's side of a queue. */
export interface SubmissionQueue {
  /** Commands that wait for their answer or for a place. */
  readonly underWay: number;
  /** Sets how long data may be in the capsule of a command, as the controller reports for I/O queues. */
  admit(inCapsuleBytes: number): void;
  /** Resolves with the reason when the queue has ended. */
  readonly lost: Promise<Error>;
  /**
   * Sends a command when the queue has a place for it. The buffers of the command belong to the queue until the promise
   * settles.
   *
   * @throws QueueLostError, or the reason of the signal. A command that was aborted may be done nevertheless.
   */
  submit(command: HostCommand, signal?: AbortSignal): Promise<Answer>;
  /** Ends the queue. Data that the peer has not taken are dropped. */
  end(reason: Error): void;
}

/** The queue has ended before the command had its answer. */
export class QueueLostError extends Error {
  override readonly name = "QueueLostError";
  /** The controller may have done the command, or may do it still. */
  readonly wasSent: boolean;

  constructor(wasSent: boolean, reason: Error) {
    super(reason.message, { cause: reason });
    this.wasSent = wasSent;
  }
}

/** The identifiers of a queue's commands: as many as it takes at the same time. Callers are served in order. */
export class CommandIds {
  readonly #free: number[];
  readonly #waiting = new Set<{
    readonly resolve: (id: number) => void;
    readonly reject: (error: unknown) => void;
  }>();
  /** The queue of callers that take two. */
  #pairs: Promise<unknown> = Promise.resolve();
  #failure: Error | undefined;

  constructor(count: number) {
    this.#free = Array.from({ length: count }, (_, index) => count - 1 - index);
  }

  get waiting(): number {
    return this.#waiting.size;
  }

  /** Waits for a free identifier. The caller gives it back. */
  take(signal?: AbortSignal): number | Promise<number> {
    const id = this.#waiting.size === 0 ? this.#free.pop() : undefined;
    if (id !== undefined) return id;
    if (this.#failure !== undefined) return Promise.reject(this.#failure);
    return new Promise((resolve, reject) => {
      const release = () => {
        this.#waiting.delete(waiting);
        signal?.removeEventListener("abort", onAbort);
      };
      const waiting = {
        resolve: (taken: number) => {
          release();
          resolve(taken);
        },
        reject: (error: unknown) => {
          release();
          reject(error);
        },
      };
      const onAbort = () => waiting.reject(signal?.reason);
      signal?.addEventListener("abort", onAbort);
      this.#waiting.add(waiting);
    });
  }

  /**
   * Takes two identifiers; there must be at least two. Callers take a pair one after another: two that held one each
   * would wait for ever.
   */
  takeTwo(signal?: AbortSignal): Promise<readonly [number, number]> {
    const pair = this.#pairs.then(async () => {
      const first = await this.take(signal);
      try {
        return [first, await this.take(signal)] as const;
      } catch (error) {
        this.giveBack(first);
        throw error;
      }
    });
    this.#pairs = pair.catch(() => {});
    return pair;
  }

  giveBack(id: number): void {
    if (this.#waiting.size === 0) {
      this.#free.push(id);
      return;
    }
    const [next] = this.#waiting;
    next?.resolve(id);
  }

  /** Fails the waiting callers and later ones. */
  fail(error: Error): void {
    this.#failure = error;
    for (const waiting of [...this.#waiting]) waiting.reject(error);
  }
}
