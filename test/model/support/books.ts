import { type Region, RpcError } from "cinnabar";

/** Methods by what is promised of their executions. */
export type Promised = "plain" | "idempotent" | "replayed";

/** A call as it was made, and what became of it. */
export interface CallRecord {
  readonly number: number;
  readonly promised: Promised;
  /** Length of the text that goes along, and of the one that comes back. */
  readonly textLength: number;
  readonly startedMs: number;
  readonly timeoutMs: number;
  readonly retries: boolean;
  readonly controller: AbortController;
  readonly lent: GrantedMemory | undefined;
  /** How often it ended: by its caller, or together with the call that it was made for. */
  settled: number;
}

/** Memory that a call has lent, and what it shall look like. */
export interface GrantedMemory {
  readonly region: Region;
  readonly bytes: Uint8Array;
  readonly access: "read" | "write";
}

/** A handler's run. */
export interface Execution {
  readonly number: number;
  readonly life: number;
  answered: boolean;
  /** What it wrote into the caller's memory is in place. */
  written: boolean;
}

const poison = 0xee;

/** What really happened, against which all that anybody is told is held. */
export class Books {
  readonly calls: CallRecord[] = [];
  readonly executions: Execution[] = [];
  readonly violations: string[] = [];
  /** How many processes there have been. */
  lives = 0;
  /** Memory that nobody may touch any more. */
  readonly #left: { readonly bytes: Uint8Array; readonly whose: string; readonly copy: Uint8Array }[] = [];

  violated(what: string): void {
    this.violations.push(what);
  }

  executionsOf(number: number): Execution[] {
    return this.executions.filter((execution) => execution.number === number);
  }

  get open(): CallRecord[] {
    return this.calls.filter(({ settled }) => settled === 0);
  }

  /** A call has its value. */
  onValue(call: CallRecord, value: Answer): void {
    this.#onSettled(call);
    const execution = this.executions[value.execution];
    const { number, textLength, lent } = call;
    if (execution?.number !== number || value.number !== number)
      return this.violated(`call ${number} was given the answer of call ${execution?.number}`);
    if (!execution.answered) this.violated(`call ${number} was given an answer that was never returned`);
    if (value.text !== textOf(number, value.execution, textLength))
      this.violated(`call ${number} was given a wrong text`);
    if (lent?.access === "write" && execution.written && !isPattern(lent.bytes, number, value.execution))
      this.violated(`call ${number} has succeeded without the bytes of execution ${value.execution}`);
    if (lent !== undefined && !call.retries && lent.region.grants > 0 && !lent.region.disposed)
      this.violated(`call ${number} has succeeded, and its memory is still lent`);
  }

  /** A call has its error. */
  onError(call: CallRecord, error: unknown): void {
    this.#onSettled(call);
    const { number } = call;
    if (!(error instanceof RpcError)) return this.violated(`call ${number} failed with ${String(error)}`);
    if (error.attempts !== undefined && error.attempts < 2)
      this.violated(`call ${number} counts ${error.attempts} attempts`);
    if (error.notExecuted && this.executionsOf(number).length > 0)
      this.violated(`call ${number} was executed, though its error says it was not: ${error.message}`);
  }

  #onSettled(call: CallRecord): void {
    if (++call.settled > 1) this.violated(`call ${call.number} settled ${call.settled} times`);
    const { lent } = call;
    if (lent === undefined) return;
    // Anything written from the moment that nobody has it any more is somebody else's bytes destroyed.
    lent.region[Symbol.asyncDispose]().then(() => {
      lent.bytes.fill(poison);
      this.leave(lent.bytes, `memory lent for call ${call.number}`);
    });
  }

  /** From now on the memory must not change. */
  leave(bytes: Uint8Array, whose: string): void {
    this.#left.push({ bytes, whose, copy: bytes.slice() });
  }

  checkMemory(): void {
    for (const { bytes, whose, copy } of this.#left)
      if (Buffer.compare(bytes, copy) !== 0)
        this.violated(`${whose} was written after it had been given back`);
  }

  checkExecutions(): void {
    for (const { number, promised } of this.calls) {
      const times = this.executionsOf(number).length;
      if (promised !== "idempotent" && times > 1)
        this.violated(`call ${number} (${promised}) was executed ${times} times`);
    }
  }
}

/** What a handler answers: enough to know whose it is. */
export interface Answer {
  readonly number: number;
  readonly execution: number;
  readonly text: string;
}

/** A text that no other call and no other execution has. */
export function textOf(number: number, execution: number, length: number): string {
  return `call ${number} execution ${execution} `.padEnd(
    length,
    String.fromCharCode(97 + ((number + execution) % 26)),
  );
}

/** A request's text knows no execution. */
export const requested = -1;

export function fillPattern(bytes: Uint8Array, number: number, execution: number): void {
  for (let i = 0; i < bytes.length; i++) bytes[i] = patternAt(i, number, execution);
}

export function isPattern(bytes: Uint8Array, number: number, execution: number): boolean {
  for (let i = 0; i < bytes.length; i++) if (bytes[i] !== patternAt(i, number, execution)) return false;
  return true;
}

const patternAt = (at: number, number: number, execution: number): number =>
  (at * 7 + number * 31 + execution * 101 + (at >> 8)) & 0x7f;
