import type { IncomingCall } from "../call/incoming-call.ts";
import { RpcError } from "../errors/rpc-error.ts";
import { planExtents } from "./extents.ts";
import { hold } from "./local-memory.ts";
import { pacingOf } from "./pacing.ts";
import type { HeldMemory } from "./registration-cache.ts";
import { type Run, type RunOwner, Scheduler } from "./scheduler.ts";
import { givenUp, refused, stoppedEarly } from "./transfer-error.ts";
import type { TransferControl } from "./transfer-options.ts";
import { assertApart, type CheckedPart } from "./transfer-part.ts";
import type { TransferRoute } from "./transfer-route.ts";

/** What a transfer does when its bytes are in place, before it resolves. */
export interface TransferEnding {
  /** What a transfer that is one operation can carry to its target instead, if anything. */
  notice(parts: readonly CheckedPart[]): bigint | undefined;
  run(parts: readonly CheckedPart[], bytes: number): Promise<void>;
}

/** How far a transfer is. */
export interface TransferProgress {
  /** How many bytes have surely moved. */
  readonly bytes: number;
  /** How many are still to come. */
  readonly remaining: number;
  /** On average since the transfer began. */
  readonly bytesPerSecond: number;
}

/**
 * One transfer from its checks to its landing. Two ends, which need not be one: it *settles* when its promise does, and *lands* when nothing of
 * it is under way; until then the local memory is held, and so is the call's terminal frame.
 */
export class Movement implements RunOwner {
  readonly op: "get" | "put";
  readonly route: TransferRoute;
  readonly #call: IncomingCall;
  readonly #control: TransferControl;
  #check: (() => readonly CheckedPart[]) | undefined;
  #ending: TransferEnding | undefined;
  parts: readonly CheckedPart[] = [];
  /** How many bytes it is to move. */
  total = 0;
  /** How many have surely moved. */
  moved = 0;
  #run: Run | undefined;
  #held: HeldMemory[] = [];
  #resolve!: (bytes: number) => void;
  #reject!: (error: unknown) => void;
  #settled = false;
  #landed = false;
  #onLanded: (() => void)[] = [];
  #onStep: (() => void)[] = [];
  #listening = false;
  #cancelTimer: (() => void) | undefined;
  /** The provider has refused it, and its owner is being asked why. */
  #refusal: RpcError | undefined;
  #beganMs = 0;
  #settledMs = 0;

  /** `check` gives the parts, or throws what the transfer is to reject with. */
  constructor(
    op: "get" | "put",
    route: TransferRoute,
    call: IncomingCall,
    control: TransferControl,
    check: () => readonly CheckedPart[],
    ending?: TransferEnding,
  ) {
    this.op = op;
    this.route = route;
    this.#call = call;
    this.#control = control;
    this.#check = check;
    this.#ending = ending;
  }

  /** Posts the first chunks, or settles at once. Never throws. */
  begin(resolve: (bytes: number) => void, reject: (error: unknown) => void): void {
    this.#resolve = resolve;
    this.#reject = reject;
    try {
      this.#begin();
    } catch (error) {
      this.#settle();
      this.#land();
      reject(error);
    }
  }

  #begin(): void {
    const check = this.#check as () => readonly CheckedPart[];
    this.#check = undefined;
    const parts = check();
    this.parts = parts;
    this.total = parts.reduce((sum, { bytes }) => sum + bytes, 0);
    assertApart(this.op, parts);
    const { signal } = this.#control;
    if (signal?.aborted === true) throw givenUp(this, signal.reason);
    this.#call.beginTransfer();
    if (this.total === 0) {
      this.#call.endTransfer();
      this.#land();
      this.#listen();
      this.#complete();
      return;
    }
    let begun = 0;
    try {
      for (const { region } of parts) {
        region?.beginLocalUse();
        begun++;
      }
      this.#post(parts);
    } catch (error) {
      this.#letGo(begun);
      this.#call.endTransfer();
      throw error;
    }
    if (!this.#settled) this.#listen();
    this.route.kick();
  }

  #post(parts: readonly CheckedPart[]): void {
    const { port, address, clock } = this.route;
    const legs = parts.map(({ remote, offset, bytes, local }) => ({
      remote: remote.segments,
      remoteOffset: offset,
      local: local.map((view) => {
        const held = hold(port, view);
        this.#held.push(held);
        return { memory: held.memory, offset: held.offset, bytes: view.byteLength };
      }),
      localOffset: 0,
      bytes,
    }));
    const extents = planExtents(legs);
    const pacing = pacingOf(port, this.#control);
    const isOne = extents.length === 1 && this.total <= pacing.chunkBytes;
    const notice = isOne ? this.#ending?.notice(parts) : undefined;
    if (notice !== undefined) this.#ending = undefined;
    this.#beganMs = clock.now();
    this.#run = Scheduler.of(port).start({
      op: this.op === "get" ? "read" : "write",
      address,
      extents,
      pacing,
      owner: this,
      notice,
    });
  }

  // ---- the run's owner ---------------------------------------------------------------------------------------------------

  stopped(): boolean {
    return this.#settled || !this.#call.open;
  }

  onMoved(bytes: number): void {
    this.moved += bytes;
    this.#step();
  }

  onEnded(status: number): void {
    this.#letGo(this.parts.length);
    this.route.onLanded(this.op, this.moved);
    const complete = this.moved === this.total;
    if (!this.#settled && complete) this.#complete();
    else if (!this.#settled && status === 0) this.#fail(stoppedEarly(this));
    // Also where nobody waits for the reason: what was refused may have broken the connection, with all that was under way on it.
    else if (status !== 0) this.#refuse(status);
    this.#land();
    // Last: it may send the terminal frame.
    this.#call.endTransfer();
  }

  /** Everything is in place. What remains to be done needs no memory held; until it is done the transfer can be given up. */
  #complete(): void {
    if (this.#ending === undefined) return this.#succeed();
    this.#ending.run(this.parts, this.total).then(
      () => {
        if (!this.#settled) this.#succeed();
      },
      (error: unknown) => this.#fail(error),
    );
  }

  #succeed(): void {
    this.#settle();
    this.#resolve(this.total);
  }

  #refuse(status: number): void {
    const { error, explained } = refused(this, status);
    if (explained === undefined) return this.#fail(error);
    this.#refusal = error;
    // The call's end or the user's signal may come first.
    explained.then((reason) => {
      if (!this.#settled) this.#fail(reason);
    });
  }

  // ---- the two ends ------------------------------------------------------------------------------------------------------

  #listen(): void {
    const { signal, timeoutMs } = this.#control;
    this.#listening = true;
    this.#call.signal.addEventListener("abort", this.#onCallAborted, { once: true });
    signal?.addEventListener("abort", this.#onAborted, { once: true });
    if (timeoutMs !== undefined)
      this.#cancelTimer = this.route.clock.timer(timeoutMs, () => this.#fail(givenUp(this, timeoutMs)), true);
  }

  readonly #onCallAborted = (): void => {
    const { reason } = this.#call.signal;
    // A session that is lost while the owner is asked was lost to this refusal: its connection broke.
    const lost = this.#refusal !== undefined && reason instanceof RpcError && reason.code === "unavailable";
    this.#fail(lost ? this.#refusal : reason);
  };
  readonly #onAborted = (): void => this.#fail(givenUp(this, this.#control.signal?.reason));

  #fail(error: unknown): void {
    if (this.#settled) return;
    this.#settle();
    this.#reject(error);
    this.#run?.stop();
  }

  #settle(): void {
    this.#settled = true;
    this.#settledMs = this.route.clock.now();
    if (this.#listening) {
      this.#call.signal.removeEventListener("abort", this.#onCallAborted);
      this.#control.signal?.removeEventListener("abort", this.#onAborted);
      this.#cancelTimer?.();
    }
    this.#step();
  }

  #letGo(begun: number): void {
    for (const held of this.#held) held.release();
    this.#held = [];
    for (let i = 0; i < begun; i++) this.parts[i]?.region?.endLocalUse();
  }

  #land(): void {
    this.#landed = true;
    for (const resolve of this.#onLanded) resolve();
    this.#onLanded = [];
  }

  async landed(): Promise<number> {
    if (!this.#landed) await new Promise<void>((resolve) => this.#onLanded.push(resolve));
    return this.moved;
  }

  // ---- who watches -------------------------------------------------------------------------------------------------------

  #step(): void {
    if (this.#onStep.length === 0) return;
    const waiting = this.#onStep;
    this.#onStep = [];
    for (const resolve of waiting) resolve();
  }

  async *steps(): AsyncGenerator<TransferProgress, undefined> {
    for (let seen = 0; ; ) {
      if (this.moved !== seen) {
        seen = this.moved;
        yield this.#progress();
      } else if (this.#settled) return;
      else await new Promise<void>((resolve) => this.#onStep.push(resolve));
    }
  }

  #progress(): TransferProgress {
    const untilMs = this.#settled ? this.#settledMs : this.route.clock.now();
    const seconds = (untilMs - this.#beganMs) / 1000;
    return {
      bytes: this.moved,
      remaining: this.total - this.moved,
      bytesPerSecond: seconds > 0 ? this.moved / seconds : 0,
    };
  }
}
