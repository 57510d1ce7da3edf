import { RpcError } from "../base/errors/rpc-error.ts";
import type { Port } from "../fabric/port.ts";
import { type Access, permits } from "./region-kind.ts";

/** A put into a region with a request for a notification. */
export interface PutNotification {
  /** The number that the sender gave as `notify`. */
  readonly n: number;
  /** How many bytes were put. They are in place. */
  readonly bytes: number;
}

/**
 * How many notifications of a region wait for a reader. Further ones are rejected; where the sender gets no answer,
 * they are lost.
 */
export const maxPutNotifications = 1024;

type NotificationResult = IteratorResult<PutNotification, undefined>;
const over: NotificationResult = { done: true, value: undefined };

/** Marks lost notifications. Their senders believe them delivered. */
const gap = Symbol("gap");

/** A reader that waits for the next notification. */
interface NextNotification {
  resolve(result: NotificationResult): void;
  reject(error: RpcError): void;
}

/** The put notifications of one region in order of arrival, for one reader at a time. */
export class PutNotificationQueue {
  #waiting: (PutNotification | typeof gap)[] = [];
  #asked: NextNotification[] = [];
  #reader: object | undefined;
  #closed = false;

  get hasReader(): boolean {
    return this.#reader !== undefined;
  }

  /** False when too many wait already, or the queue is closed. */
  push(notification: PutNotification): boolean {
    if (this.#closed) return false;
    const asked = this.#asked.shift();
    if (asked !== undefined) asked.resolve({ done: false, value: notification });
    else if (this.#waiting.length < maxPutNotifications) this.#waiting.push(notification);
    else return false;
    return true;
  }

  /**
   * A notification was lost, and its sender gets no answer. The reader gets an error after the earlier notifications.
   */
  lose(): void {
    if (this.#closed) return;
    const asked = this.#asked.shift();
    if (asked !== undefined) {
      this.#detach();
      asked.reject(lost());
    } else if (this.#waiting.at(-1) !== gap) this.#waiting.push(gap);
  }

  /**
   * The iterator of `for await`. Leaving the loop, or an error, detaches it; unread notifications stay for the next
   * reader. It rejects with `resource_exhausted` where notifications were lost.
   *
   * @throws RpcError `failed_precondition` while there is another reader.
   */
  read(): AsyncIterableIterator<PutNotification, undefined> {
    if (this.#reader !== undefined) {
      throw new RpcError({
        code: "failed_precondition",
        message: "this region's notifications have a reader already",
      });
    }
    const reader: AsyncIterableIterator<PutNotification, undefined> = {
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

  /** Ends the queue: the reader gets the waiting notifications, then the end. */
  close(): void {
    this.#closed = true;
    if (this.#asked.length > 0) this.#detach();
  }

  #next(): Promise<NotificationResult> {
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
    message: `put notifications were lost: more than ${maxPutNotifications} waited for a reader, or it was not certain which region they were for`,
  });
}

const low = (key: bigint): number => Number(BigInt.asUintN(32, key));

/** Length of a notification that a put carries, in bytes. */
export const putNotificationBytes = 8;

/** The immediate data of a put: the lower half of the grant's key above the number. */
export function putNotificationData(key: bigint, n: number): bigint {
  return (BigInt.asUintN(32, key) << 32n) | BigInt(n);
}

/** The part of a granted region that put notifications need. */
export interface PutTarget {
  /** What the peer may do with it. */
  readonly access: Access;
  readonly region: {
    readonly byteLength: number;
    /** False when too many notifications wait, or the region has been disposed. */
    notify(notification: PutNotification): boolean;
    losePutNotification(): void;
  };
}

/**
 * The regions granted over one port, in all sessions, by the lower half of the grant's key. The immediate data of a put
 * has this half, and does not name the session. The keys are random, so a forger would have to guess one.
 */
export class PutNotificationTargets {
  readonly #grants = new Map<number, readonly PutTarget[]>();

  private constructor() {}

  /** The table of a port; the first call creates it. */
  static of(port: Port): PutNotificationTargets {
    let targets = byPort.get(port);
    if (targets === undefined) {
      targets = new PutNotificationTargets();
      byPort.set(port, targets);
    }
    return targets;
  }

  /** How many grants can receive notifications. */
  get size(): number {
    return this.#grants.size;
  }

  add(key: bigint, target: PutTarget): void {
    this.#grants.set(low(key), [...this.#find(low(key)), target]);
  }

  delete(key: bigint, target: PutTarget): void {
    const left = this.#find(low(key)).filter((other) => other !== target);
    if (left.length > 0) this.#grants.set(low(key), left);
    else this.#grants.delete(low(key));
  }

  /**
   * Delivers the notification of a put that has landed. Returns "", or the fault of the notification. The sender gets
   * no answer: when a notification is lost, the region's queue reports it to its reader.
   */
  deliver(data: bigint, bytes: number): string {
    const [target, ...others] = this.#find(Number(data >> 32n));
    if (target === undefined) return "a put notification for a region that is not granted";
    if (others.length > 0) {
      for (const { region } of [target, ...others]) region.losePutNotification();
      return "a put notification that may be for several regions";
    }
    const { region, access } = target;
    if (!permits(access, "write") || bytes === 0 || bytes > region.byteLength)
      return "a put notification that no put can have caused";
    if (!region.notify({ n: low(data), bytes })) region.losePutNotification();
    return "";
  }

  #find(token: number): readonly PutTarget[] {
    return this.#grants.get(token) ?? [];
  }
}

const byPort = new WeakMap<Port, PutNotificationTargets>();
