import { RpcError } from "../base/errors/rpc-error.ts";
import { textOf } from "../base/errors/thrown.ts";
import type { Clock } from "../base/time/clock.ts";

/**
 * Receives each error that a handler throws and its contract does not declare. The caller receives `internal`, without
 * the text. It also receives the error of a nested call with addresses in its message: the caller receives that error
 * without the addresses. It also receives the cause when an error's data could not be encoded. One-way calls have no
 * answer, so each of their failures is reported here, calls that never began included.
 */
export type HandlerErrorListener = (error: unknown, call: FailedCall) => void;

/** The call whose handler failed. */
export interface FailedCall {
  /** `service/method`. */
  readonly method: string;
  readonly callId: number;
  /** Whether the handler began. A one-way call may be shed or refused before. */
  readonly began: boolean;
}

/** The time between prints of the number of repetitions, in milliseconds. */
const periodMs = 1000;
/** The most kinds that are counted apart. Further kinds are counted together. */
const maxKinds = 256;

interface Kind {
  readonly line: string;
  repeats: number;
}

/**
 * The default listener for errors of handlers. It prints the first error of a kind with its stack. After that it prints
 * once a second how often that kind has come again. A kind is a method with the code or the name of the error. So a
 * flood of failures costs one line a second, not one stack each.
 */
export class HandlerErrorLog {
  readonly #clock: Clock;
  readonly #print: (line: string, error?: unknown) => void;
  readonly #kinds = new Map<string, Kind>();
  #cancelTimer: (() => void) | undefined;

  constructor(clock: Clock, print: (line: string, error?: unknown) => void = printError) {
    this.#clock = clock;
    this.#print = print;
  }

  readonly report: HandlerErrorListener = (error, { method, callId, began }) => {
    const what = began ? `the handler of ${method} failed` : `${method} was not executed`;
    const key = `${what} ${kindOf(error)}`;
    const known = this.#kinds.has(key) || this.#kinds.size < maxKinds ? key : "";
    const kind = this.#kinds.get(known);
    if (kind !== undefined) {
      kind.repeats++;
      return;
    }
    const line = known === "" ? "handlers failed in other ways" : what;
    this.#kinds.set(known, { line, repeats: 0 });
    // A call that was turned away ran no code, so a stack explains nothing.
    if (began) this.#print(`cinnabar: ${what} in call ${callId}:`, error);
    else this.#print(`cinnabar: ${what} (call ${callId}): ${textOf(error)}`);
    this.#cancelTimer ??= this.#clock.timer(periodMs, () => this.#count(), true);
  };

  /** Prints the counts that have not been printed yet, and ends the timer. */
  close(): void {
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
    for (const kind of this.#kinds.values()) this.#printRepeats(kind);
    this.#kinds.clear();
  }

  /** A kind that has not come for a period is dropped: its next error is printed with its stack. */
  #count(): void {
    for (const [key, kind] of this.#kinds) {
      if (kind.repeats === 0) this.#kinds.delete(key);
      else this.#printRepeats(kind);
      kind.repeats = 0;
    }
    this.#cancelTimer =
      this.#kinds.size > 0 ? this.#clock.timer(periodMs, () => this.#count(), true) : undefined;
  }

  #printRepeats({ line, repeats }: Kind): void {
    if (repeats > 0) this.#print(`cinnabar: ${line} ${repeats} more times`);
  }
}

function kindOf(error: unknown): string {
  try {
    if (error instanceof RpcError) return String(error.code);
    return error instanceof Error ? String(error.name) : typeof error;
  } catch {
    return typeof error;
  }
}

function printError(line: string, error?: unknown): void {
  if (error === undefined) return console.error(line);
  try {
    console.error(line, error);
  } catch {
    // The error has a custom inspection method that throws.
    console.error(line, textOf(error));
  }
}
