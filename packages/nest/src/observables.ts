import { type ItemSource, RpcError } from "cinnabar/standard";
import { Observable, takeWhile } from "rxjs";

/**
 * Lets a source of items go on only while its consumer waits: an Observable has no way to say that. Both ends of a call
 * share one.
 */
export class Pace {
  #waits = false;
  #go: (() => void) | undefined;

  /** The consumer has taken all there is, and waits. */
  open(): void {
    this.#waits = true;
    const go = this.#go;
    this.#go = undefined;
    go?.();
  }

  /** The consumer has something to take. */
  shut(): void {
    this.#waits = false;
  }

  /** Undefined: the consumer waits already. */
  turn(): Promise<void> | undefined {
    if (this.#waits) return undefined;
    return new Promise((resolve) => {
      this.#go = resolve;
    });
  }
}

const paces = new WeakMap<object, Pace>();

/** The pace of a call, by its context. */
export function paceOf(context: object): Pace {
  let pace = paces.get(context);
  if (pace === undefined) {
    pace = new Pace();
    paces.set(context, pace);
  }
  return pace;
}

/** Whether a value gives items: a text does, too, but is one value to Nest. */
export function isItemSource(value: unknown): value is ItemSource<unknown> {
  if (typeof value !== "object" || value === null) return false;
  return Symbol.asyncIterator in value || Symbol.iterator in value;
}

/** The items as an Observable, so that interceptors and filters see them, each when the consumer waits for it. */
export function observed(source: ItemSource<unknown>, pace: Pace): Observable<unknown> {
  return new Observable((subscriber) => {
    const iterator =
      Symbol.asyncIterator in source ? source[Symbol.asyncIterator]() : source[Symbol.iterator]();
    let isOver = false;
    const run = async (): Promise<void> => {
      try {
        for (;;) {
          const turn = pace.turn();
          if (turn !== undefined) await turn;
          if (subscriber.closed) return;
          const { done, value } = await iterator.next();
          if (done === true) {
            isOver = true;
            return subscriber.complete();
          }
          pace.shut();
          subscriber.next(value);
        }
      } catch (error) {
        isOver = true;
        subscriber.error(error);
      }
    };
    void run();
    return () => {
      if (isOver) return;
      // The generator may wait, and its `finally` may throw: nobody is left to receive that error.
      void Promise.resolve(iterator.return?.()).catch(() => {});
      pace.open();
    };
  });
}

/**
 * The values of an Observable. Those that have come and were not taken are at most `maxQueued`. Unsubscribes when the
 * iteration ends and when `signal` fires.
 */
export async function* pulled(
  source: Observable<unknown>,
  { pace, signal, maxQueued }: { pace: Pace; signal: AbortSignal; maxQueued: number },
): AsyncGenerator<unknown, void> {
  // A signal that has fired calls no listener.
  if (signal.aborted) return;
  let queue: unknown[] = [];
  let wake: (() => void) | undefined;
  let isOver = false;
  let failure: { readonly error: unknown } | undefined;
  const notify = () => {
    const waiting = wake;
    wake = undefined;
    waiting?.();
  };
  const end = () => {
    isOver = true;
    notify();
  };
  // An Observable that gives all at once has no subscription yet that could end it.
  const subscription = source.pipe(takeWhile(() => !isOver)).subscribe({
    next: (value) => {
      queue.push(value);
      if (queue.length > maxQueued) {
        failure = {
          error: new RpcError({
            code: "resource_exhausted",
            message: `the handler's Observable is ahead of the caller by more than ${maxQueued} items`,
          }),
        };
        queue = [];
        end();
        queueMicrotask(() => subscription.unsubscribe());
        return;
      }
      notify();
    },
    error: (error: unknown) => {
      failure ??= { error };
      end();
    },
    complete: end,
  });
  signal.addEventListener("abort", end, { once: true });
  try {
    for (;;) {
      const taken = queue;
      queue = [];
      yield* taken;
      if (queue.length > 0) continue;
      if (isOver) break;
      await new Promise<void>((resolve) => {
        wake = resolve;
        pace.open();
      });
    }
    if (failure !== undefined) throw failure.error;
  } finally {
    subscription.unsubscribe();
    signal.removeEventListener("abort", end);
  }
}

/**
 * The value of an Observable; undefined if it has none. Where there is a `path` of a method that answers once, several
 * values are an error; without it they are ignored.
 */
export function only(
  source: Observable<unknown>,
  signal: AbortSignal,
  path?: string | undefined,
): Promise<unknown> {
  if (signal.aborted) return Promise.reject(signal.reason);
  return new Promise((resolve, reject) => {
    let value: unknown;
    let count = 0;
    const stop = () => {
      subscription.unsubscribe();
      reject(signal.reason);
    };
    const settle = () => signal.removeEventListener("abort", stop);
    const subscription = source.subscribe({
      next: (next) => {
        count++;
        value = next;
      },
      error: (error: unknown) => {
        settle();
        reject(error);
      },
      complete: () => {
        settle();
        if (count < 2 || path === undefined) resolve(value);
        else reject(new TypeError(`${path} answers once, and its handler's Observable gave ${count} values`));
      },
    });
    if (!subscription.closed) signal.addEventListener("abort", stop, { once: true });
  });
}
