import { currentCall } from "../call/current-call.ts";
import { OutgoingCall, regionRevoked } from "../call/outgoing-call.ts";
import { publishSlowOutgoing } from "../call/slow-calls.ts";
import type { RpcCode } from "../errors/code.ts";
import { RpcError, type RpcErrorOptions } from "../errors/rpc-error.ts";
import type { Session } from "../session/session.ts";
import { type Abortable, unwatchAbort, watchAbort } from "./abort-watch.ts";
import type { CallOptions } from "./call-options.ts";
import {
  type CheckedCall,
  checkInput,
  endWithError,
  endWithValue,
  isTimeout,
  timeLeftIn,
  timeUp,
} from "./check.ts";
import { type ClientMethod, recordEnd } from "./client-method.ts";

/** One call from the moment a user makes it: checked, sent, awaited, and settled exactly once. */
export class ClientCall extends OutgoingCall implements Abortable, CheckedCall {
  readonly promise: Promise<unknown>;
  readonly method: ClientMethod;
  #timeoutMs: number;
  #resolve!: (value: unknown) => void;
  #reject!: (error: RpcError) => void;
  #session: Session | undefined;
  #signal: AbortSignal | undefined;
  /** Nothing has been waited for yet: the time is still that of the start, and need not be asked for again. */
  #begins = true;
  /** Of the call that this one was made for. */
  #around: AbortSignal | undefined;

  constructor(method: ClientMethod, input: unknown, options: CallOptions | undefined) {
    super();
    this.method = method;
    this.#timeoutMs = options?.timeoutMs ?? method.timeoutMs;
    this.priority = options?.priority ?? method.priority;
    this.failsWhenFull = (options?.whenFull ?? method.whenFull) === "fail";
    this.promise = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    const { host } = method.source;
    host.counters.callsStarted++;
    this.startedMs = host.clock.now();
    const around = (options?.inherit ?? method.inherit) ? currentCall() : undefined;
    if (around !== undefined) this.#timeoutMs = timeLeftIn(around, this.startedMs, this.#timeoutMs);
    host.wheel.arm(this, this.startedMs + this.#timeoutMs);
    if (options?.signal !== undefined) this.#signal = this.#listen(options.signal);
    if (around !== undefined) this.#around = this.#listen(around.signal);
    if (!this.settled) this.#checkInput(input);
    this.#begins = false;
  }

  override get methodPath(): string {
    return this.method.path;
  }

  override get peerName(): string {
    return this.#session?.peerName ?? this.method.source.name;
  }

  #listen(signal: AbortSignal): AbortSignal | undefined {
    if (signal.aborted) this.onAbort(signal.reason);
    if (this.settled) return undefined;
    watchAbort(signal, this);
    return signal;
  }

  #checkInput(input: unknown): void {
    if (this.method.takesNothing && input === undefined) return this.#acquire(undefined);
    checkInput(this, input);
  }

  onChecked(input: unknown): void {
    // The original value travels: the server parses it, and so transforms run once.
    this.#acquire(input);
  }

  #acquire(input: unknown): void {
    let session: Session | Promise<Session>;
    try {
      session = this.method.source.session(this, input);
    } catch (error) {
      return this.onFailure(error as RpcError);
    }
    if (session instanceof Promise) {
      this.phase = "connecting";
      this.connectingUs = this.#begins ? 0 : this.elapsedUs(this.method.source.host.clock.now());
      session.then(
        (opened) => {
          if (!this.settled) this.#send(opened, input);
        },
        (error: RpcError) => {
          if (!this.settled) this.onFailure(error);
        },
      );
    } else this.#send(session, input);
  }

  #send(session: Session, input: unknown): void {
    const { service, path, source } = this.method;
    const number = this.method.numberIn(session.methods);
    if (number < 0) {
      const what = session.methods.serves(service) ? `no method "${path}"` : `no service "${service}"`;
      return this.fail("unimplemented", `${source.name} has ${what}`);
    }
    try {
      this.#session = session;
      const nowMs = this.#begins ? this.startedMs : source.host.clock.now();
      session.request(this, number, this.deadlineMs, input, nowMs);
      // Given up from inside the encoding, before the request had left.
      if (this.settled) session.cancel(this);
    } catch (error) {
      if (error instanceof RpcError) this.onFailure(error);
      else this.fail("internal", "the request could not be sent", { cause: error });
    }
  }

  override onValue(value: unknown): void {
    endWithValue(this, value);
  }

  override onFailure(error: RpcError): void {
    endWithError(this, error);
  }

  override onUnsent(error: RpcError, input: unknown): void {
    if (!this.method.source.patient) return this.onFailure(error);
    this.#session = undefined;
    // Whoever has sessions must hear first that this one has ended.
    queueMicrotask(() => {
      if (!this.settled) this.#acquire(input);
    });
  }

  override onDeadline(): void {
    if (this.settled) return;
    const phase = this.id === 0 ? "before it could be sent" : "without an answer";
    this.fail("deadline_exceeded", `${this.#timeoutMs} ms have passed ${phase}`);
    this.#session?.cancel(this);
  }

  override onRevoked(): void {
    if (this.settled) return;
    this.fail("aborted", regionRevoked);
    this.#session?.cancel(this);
  }

  onAbort(reason: unknown): void {
    if (this.settled) return;
    if (isTimeout(reason)) this.fail("deadline_exceeded", timeUp(reason), { cause: reason });
    else this.fail("cancelled", "the caller gave up", { cause: reason });
    this.#session?.cancel(this);
  }

  succeed(value: unknown): void {
    this.#settle("ok");
    this.method.source.host.counters.callsSucceeded++;
    this.tellCompanions(undefined);
    this.#resolve(value);
  }

  fail(code: RpcCode, message: string, more: Partial<RpcErrorOptions> = {}): void {
    this.#settle(code);
    this.method.source.host.counters.callsFailed++;
    const error = new RpcError({ origin: "local", ...more, code, message, ...this.#where() });
    this.tellCompanions(error);
    this.#reject(error);
  }

  #where(): Partial<RpcErrorOptions> {
    const method = this.method.path;
    // Without a number nothing has left.
    return this.id === 0 ? { method, notExecuted: true } : { method, callId: this.id };
  }

  #settle(code: RpcCode | "ok"): void {
    this.phase = "settled";
    const { host } = this.method.source;
    host.wheel.disarm(this);
    if (this.#session !== undefined && this.id !== 0) this.method.source.onSettled?.(this.#session, code);
    if (this.#signal !== undefined) unwatchAbort(this.#signal, this);
    if (this.#around !== undefined) unwatchAbort(this.#around, this);
    const slowMs = recordEnd(this.method, this.startedMs, code);
    if (slowMs !== undefined) publishSlowOutgoing(this, slowMs, code);
  }
}
