import type { RpcCode } from "../errors/code.ts";
import { callHook } from "../errors/thrown.ts";
import type { SlowCall } from "./channels.ts";

/** Writes lines, each with an object: the logger of pino as it is, or the console. */
export interface Logger {
  debug(object: object, message: string): void;
  info(object: object, message: string): void;
  warn(object: object, message: string): void;
  error(object: object, message: string): void;
}

/** The log entry of a call that has ended. */
export interface LoggedCall extends SlowCall {
  /** The message of the error it ended with, where this side knows it. */
  readonly error?: string;
}

/** Codes that mean a faulty program or lost data. */
const faults: ReadonlySet<RpcCode | "ok"> = new Set(["internal", "unknown", "data_loss"]);

/** One line for each call that was slow or has failed. */
export class CallLog {
  readonly #logger: Logger;

  constructor(logger: Logger) {
    this.#logger = logger;
  }

  write(call: LoggedCall): void {
    const { direction, method, code, tookMs } = call;
    const what = direction === "out" ? `call of ${method}` : `request for ${method}`;
    const how = code === "ok" ? "took" : `failed with ${code} after`;
    const level = faults.has(code) ? "error" : code === "cancelled" ? "info" : "warn";
    callHook(() => this.#logger[level](call, `${what} ${how} ${Math.round(tookMs * 1000) / 1000} ms`));
  }
}
