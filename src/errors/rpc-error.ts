import type { RpcCode } from "./code.ts";

/** Where a failure began: in this process before anything was sent, at the peer, or in the fabric between them. */
export type RpcErrorOrigin = "local" | "remote" | "fabric";

/** What the fabric said, as it said it. */
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

/** What an `RpcError` is made of. */
export interface RpcErrorOptions {
  readonly code: RpcCode;
  /** One sentence for people, with the names and numbers that matter; the code is put in front of it. */
  readonly message: string;
  /** The declared error's name. Only for errors that the method's contract declares. */
  readonly reason?: string | undefined;
  /** The declared error's data, already validated. */
  readonly data?: unknown;
  /** Default: "fabric" when `fabric` is given, else "local". */
  readonly origin?: RpcErrorOrigin | undefined;
  readonly fabric?: FabricDetail | undefined;
  /** Default: true for `unavailable` and whenever `retryAfterMs` is given, else false. */
  readonly retryable?: boolean | undefined;
  /** How long the peer asks to wait before the next attempt, in milliseconds. */
  readonly retryAfterMs?: number | undefined;
  /** Whether it is certain that no handler was begun for the call. Default: false. */
  readonly notExecuted?: boolean | undefined;
  /** How many times the call was tried. Left out when it was once. */
  readonly attempts?: number | undefined;
  /** How many bytes of a bulk transfer had surely moved when it failed. */
  readonly transferredBytes?: number | undefined;
  readonly callId?: number | undefined;
  /** The method called, as `service/method`: "frames.v1/stat". */
  readonly method?: string | undefined;
  /** What led to this error. Stays in this process: it is never sent to a peer. */
  readonly cause?: unknown;
}

const brand: unique symbol = Symbol.for("cinnabar.RpcError");

/**
 * The one error of every call, on both sides. Match on `code`, and on `reason` for errors the contract declares
 * (`isError` narrows them with their data).
 *
 * `instanceof` holds across duplicate copies of the package. Fields that do not apply are absent, not `undefined`.
 */
export class RpcError extends Error {
  readonly code: RpcCode;
  readonly origin: RpcErrorOrigin;
  /**
   * Whether the same call has a chance when it is tried again. It says nothing about safety: whether a second execution
   * does harm depends on the method, see `idempotent`.
   */
  readonly retryable: boolean;
  /** The declared error's name; `undefined` when the contract declares no such error. */
  declare readonly reason: string | undefined;
  /** The declared error's data, validated against the contract. */
  declare readonly data?: unknown;
  /** What the fabric said; present exactly when the failure came from there. */
  declare readonly fabric?: FabricDetail;
  /** How long the peer asks to wait before the next attempt, in milliseconds. */
  declare readonly retryAfterMs?: number;
  /** True when it is certain that no handler was begun for the call; absent when one may have been. */
  declare readonly notExecuted?: true;
  /** How many times the call was tried; present when it was more than once. */
  declare readonly attempts?: number;
  /**
   * How many bytes of a bulk transfer had surely moved when its promise rejected. More may have since, where it was given up while some were under way:
   * `landed` tells. Absent for errors of anything else.
   */
  declare readonly transferredBytes?: number;
  /** The call's number on its connection, as logs and channels of both sides name it. */
  declare readonly callId?: number;
  /** The method called, as `service/method`: "frames.v1/stat". */
  declare readonly method?: string;

  static {
    // On the prototype, so that the name and the brand are no own fields of each error.
    Object.defineProperty(RpcError.prototype, "name", {
      value: "RpcError",
      configurable: true,
      writable: true,
    });
    Object.defineProperty(RpcError.prototype, brand, { value: true });
  }

  constructor(options: RpcErrorOptions) {
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
  }

  /** True for an `RpcError` of any copy of this package. Subclasses keep the ordinary `instanceof`. */
  static override [Symbol.hasInstance](value: unknown): boolean {
    // biome-ignore lint/complexity/noThisInStatic: `this` is the class on the right of `instanceof`, perhaps a subclass
    if (this !== RpcError) {
      // biome-ignore lint/complexity/noThisInStatic: as above
      return Function.prototype[Symbol.hasInstance].call(this, value);
    }
    return typeof value === "object" && value !== null && (value as { [brand]?: unknown })[brand] === true;
  }

  /** The error as plain data for logs: everything but the stack and the cause. */
  toJSON(): Record<string, unknown> {
    return Object.assign<Record<string, unknown>, this>({ name: this.name, message: this.message }, this);
  }
}
