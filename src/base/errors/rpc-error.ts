/*
 * The room `base`: what every room uses: errors, options, clocks and deadlines, counters, queues and budgets.
 * Promises: nothing here knows a peer. Every queue has a limit, and fake timers of a test do not stop the engine.
 * Takes: Node.js alone. `errors` and `options` run in browsers, too.
 */

import { codeNumbers, isRpcCode, type RpcCode } from "./code.ts";

/** The error that the fabric reported. */
export interface FabricDetail {
  /** libfabric's provider name, as in "tcp", "shm", "verbs;ofi_rxm", or "mem". */
  readonly provider: string;
  /** The operation that failed, in the field's terms: "fi_send", "fi_write", "fi_getinfo". */
  readonly op: string;
  /** libfabric's error number, positive. */
  readonly code: number;
  /** The number's name: "ECONNREFUSED", "FI_ETRUNC". */
  readonly name: string;
}

/** Metadata from a peer, in the form that this module needs: a `Metadata` that cannot be changed. */
export interface ReceivedMetadata extends Iterable<[name: string, value: string | Uint8Array]> {
  get(name: string): string | undefined;
  getBytes(name: string): Uint8Array | undefined;
  getAll(name: string): (string | Uint8Array)[];
}

/** Fields of a new `RpcError`. */
export interface RpcErrorOptions {
  readonly code: RpcCode;
  /** One sentence for people, with names and numbers. The constructor puts the code in front of it. */
  readonly message: string;
  /** Name of the declared error. Only for errors that the method's contract declares. */
  readonly reason?: string | undefined;
  /** Data of the declared error, already validated. */
  readonly data?: unknown | undefined;
  /** Default: "fabric" when `fabric` is given, else "local". */
  readonly origin?: RpcError["origin"] | undefined;
  readonly fabric?: FabricDetail | undefined;
  /** Default: true for `unavailable` and when `retryAfterMs` is set, else false. */
  readonly retryable?: boolean | undefined;
  /** Time that the peer asks to wait before the next attempt, in milliseconds. */
  readonly retryAfterMs?: number | undefined;
  /** True when certainly no handler ran for the call. Default: false. */
  readonly notExecuted?: boolean | undefined;
  /** Number of attempts. Left out when there was one. */
  readonly attempts?: number | undefined;
  /** Bytes of a transfer that had certainly moved when it failed. */
  readonly transferredBytes?: number | undefined;
  readonly callId?: number | undefined;
  /** Trailers that came with the error. */
  readonly trailers?: ReceivedMetadata | undefined;
  /** The method called, as `service/method`: "frames.v1/stat". */
  readonly method?: string | undefined;
  /** The error behind this one. It stays in this process and is never sent to a peer. */
  readonly cause?: unknown | undefined;
}

const brand: unique symbol = Symbol.for("cinnabar.RpcError");

/**
 * The error of every failed call, on both sides. Match on `code`, and on `reason` for errors that the contract
 * declares; `isError` narrows those with their data. `instanceof RpcError` also holds for errors of another copy of
 * this package. Fields that do not apply are absent, not `undefined`.
 *
 * @example
 * try {
 *   await greeter.greet({ name: "" });
 * } catch (error) {
 *   if (error instanceof RpcError && error.code === "deadline_exceeded") console.error("too slow:", error.message);
 *   else throw error;
 * }
 */
export class RpcError extends Error {
  readonly code: RpcCode;
  /** Where the failure began: in this process ("local"), at the peer ("remote"), or in the fabric between them. */
  readonly origin: "local" | "remote" | "fabric";
  /**
   * Whether another attempt may succeed. This does not mean that a retry is safe: whether a second execution does harm
   * depends on the method, see `idempotent`.
   */
  readonly retryable: boolean;
  /** Name of the declared error; `undefined` when the contract declares no such error. */
  declare readonly reason: string | undefined;
  /** Data of the declared error, validated against the contract. */
  declare readonly data?: unknown;
  /** The fabric's own error; present exactly when the failure came from the fabric. */
  declare readonly fabric?: FabricDetail;
  /** Time that the peer asks to wait before the next attempt, in milliseconds. */
  declare readonly retryAfterMs?: number;
  /** True when certainly no handler ran for the call; absent when one may have run. */
  declare readonly notExecuted?: true;
  /** Number of attempts; present when there was more than one. */
  declare readonly attempts?: number;
  /**
   * Bytes of a transfer that had certainly moved when its promise rejected. An abandoned transfer may move more
   * afterwards; its `landed` gives the final number. Absent for other errors.
   */
  declare readonly transferredBytes?: number;
  /** Call id on its session; both sides use the same one in logs and channels. */
  declare readonly callId?: number;
  /** The method called, as `service/method`: "frames.v1/stat". */
  declare readonly method?: string;
  /** The trailers that the server sent with the error; absent when it sent none. */
  declare readonly trailers?: ReceivedMetadata;
  static {
    // On the prototype, so that the name and the brand are not own fields of each error.
    Object.defineProperty(RpcError.prototype, "name", {
      value: "RpcError",
      configurable: true,
      writable: true,
    });
    Object.defineProperty(RpcError.prototype, brand, { value: true });
  }

  /**
   * @throws TypeError for a value that is not `RpcErrorOptions`: another form, an unknown code, or a message that is
   * not a string.
   */
  constructor(options: RpcErrorOptions) {
    assertOptions(options);
    super(`[${options.code}] ${options.message}`, "cause" in options ? { cause: options.cause } : undefined);
    this.code = options.code;
    this.origin = options.origin ?? (options.fabric === undefined ? "local" : "fabric");
    this.retryable =
      options.retryable ?? (options.code === "unavailable" || options.retryAfterMs !== undefined);
    if (options.reason !== undefined) this.reason = options.reason;
    if (options.data !== undefined) this.data = options.data;
    if (options.fabric !== undefined) this.fabric = options.fabric;
    if (options.retryAfterMs !== undefined) this.retryAfterMs = options.retryAfterMs;
    if (options.notExecuted === true) this.notExecuted = true;
    if (options.attempts !== undefined) this.attempts = options.attempts;
    if (options.transferredBytes !== undefined) this.transferredBytes = options.transferredBytes;
    if (options.callId !== undefined) this.callId = options.callId;
    if (options.method !== undefined) this.method = options.method;
    if (options.trailers !== undefined) this.trailers = options.trailers;
  }

  /** `message` without the code at its start; other errors repeat this part. */
  get plainMessage(): string {
    const prefix = `[${this.code}] `;
    return this.message.startsWith(prefix) ? this.message.slice(prefix.length) : this.message;
  }

  /** True for an `RpcError` of any copy of this package. Subclasses keep the ordinary `instanceof`. */
  static override [Symbol.hasInstance](value: unknown): boolean {
    // biome-ignore lint/complexity/noThisInStatic: `this` is the class on the right of `instanceof`, perhaps a subclass
    if (this !== RpcError) {
      // biome-ignore lint/complexity/noThisInStatic: as above
      return Function.prototype[Symbol.hasInstance].call(this, value);
    }
    if (typeof value !== "object" || value === null) return false;
    try {
      return (value as { [brand]?: unknown })[brand] === true;
    } catch {
      // A revoked proxy, or one with a trap that throws.
      return false;
    }
  }

  /** The error as plain data for logs, without the stack and the cause. */
  toJSON(): Record<string, unknown> {
    return Object.assign<Record<string, unknown>, this>({ name: this.name, message: this.message }, this);
  }
}

const form = 'new RpcError({ code: "not_found", message: "…" })';

/** @throws TypeError that shows the right form. */
function assertOptions(options: RpcErrorOptions): void {
  if (typeof options !== "object" || options === null)
    throw new TypeError(`RpcError takes one object, not ${kindOf(options)}, as in ${form}`);
  const { code, message, reason, retryAfterMs, origin } = options;
  if (!isRpcCode(code)) {
    const given: unknown = code;
    const shown = typeof given === "string" ? JSON.stringify(given.slice(0, 40)) : kindOf(given);
    const codes = Object.keys(codeNumbers).join(", ");
    throw new TypeError(`RpcError: code must be one of ${codes}, not ${shown}`);
  }
  if (typeof message !== "string") throw new TypeError(misfit("message", "a string", message));
  if (reason !== undefined && typeof reason !== "string")
    throw new TypeError(misfit("reason", "a string", reason));
  if (retryAfterMs !== undefined && !(Number.isFinite(retryAfterMs) && retryAfterMs >= 0))
    throw new TypeError(misfit("retryAfterMs", "a number of milliseconds", retryAfterMs));
  if (origin !== undefined && origin !== "local" && origin !== "remote" && origin !== "fabric")
    throw new TypeError(misfit("origin", `"local", "remote" or "fabric"`, origin));
}

function misfit(name: string, expected: string, value: unknown): string {
  return `RpcError: ${name} must be ${expected}, not ${kindOf(value)}, as in ${form}`;
}

/** Runs no code of the value: the value may throw when it is inspected. */
function kindOf(value: unknown): string {
  if (value === undefined || value === null) return String(value);
  const kind = typeof value;
  return kind === "object" ? "an object" : `a ${kind}`;
}

/**
 * The fields of an RpcError that users' code has thrown; undefined for any other value. Its fields may have been
 * changed, and it may only look like an RpcError: fields that do not fit are refused here.
 */
export function rpcErrorFields(thrown: unknown): RpcErrorOptions | undefined {
  if (!(thrown instanceof RpcError)) return undefined;
  try {
    const { code, plainMessage: message, reason, data, retryAfterMs, origin, method, cause } = thrown;
    const fields = { code, message, reason, data, retryAfterMs, origin, method, cause };
    assertOptions(fields);
    return fields;
  } catch {
    return undefined;
  }
}

/** The error of an operation on a closed engine or peer. */
export function closedError(name: string): RpcError {
  return new RpcError({ code: "unavailable", message: `${name} has been closed` });
}

/** An error that the caller of a served call receives. */
export function remoteError(code: RpcCode, message: string, more: Partial<RpcErrorOptions> = {}): RpcError {
  return new RpcError({ ...more, code, message, origin: "remote" });
}
