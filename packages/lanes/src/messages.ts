import type { EngineStats } from "cinnabar/inspect";
import { type DrainReport, type RpcCode, RpcError } from "cinnabar/standard";
import type { LaneCredentials } from "./lane-security.ts";
import type { LaneEngineOptions } from "./options.ts";

/** What a lane's thread is started with. */
export interface LaneOrders {
  /** Undefined: the lanes have no option `security`. The thread takes them out before it loads the module. */
  security?: LaneCredentials | undefined;
  readonly module: string;
  readonly lane: number;
  readonly lanes: number;
  readonly data: unknown;
  readonly listen: readonly string[];
  readonly engine: LaneEngineOptions;
}

/** Where a lane's engine listens, and which life of it. */
export interface LaneListening {
  readonly urls: readonly string[];
  readonly incarnation: bigint;
}

/**
 * What the main thread asks a lane; each is answered once. After `drain` and `close` the thread has nothing left to
 * do.
 */
export type LaneQuestion = { readonly id: number } & (
  | { readonly ask: "stats"; readonly histograms: boolean }
  | { readonly ask: "close" }
  | { readonly ask: "reloadSecurity"; readonly security: LaneCredentials }
  | { readonly ask: "drain"; readonly graceMs: number }
);

/** The answers of a lane, by question. */
export interface LaneAnswers {
  readonly stats: EngineStats;
  readonly close: undefined;
  readonly reloadSecurity: undefined;
  readonly drain: DrainReport;
}

/** What a lane says. */
export type LaneMessage =
  | ({ readonly said: "listening" } & LaneListening)
  | { readonly said: "failed"; readonly error: ToldError }
  | { readonly said: "answer"; readonly id: number; readonly value: unknown }
  | { readonly said: "refused"; readonly id: number; readonly error: ToldError };

/** An error on its way between threads: a clone would be of no class. */
export interface ToldError {
  readonly code: RpcCode;
  readonly message: string;
  readonly stack: string;
}

export function tellError(error: unknown): ToldError {
  const message = error instanceof Error ? error.message : String(error);
  const stack = error instanceof Error ? (error.stack ?? message) : message;
  if (error instanceof RpcError) return { code: error.code, message: error.plainMessage, stack };
  return { code: "internal", message, stack };
}

export function toldError({ code, message, stack }: ToldError): RpcError {
  const cause = new Error(message);
  cause.stack = stack;
  return new RpcError({ code, message, cause });
}
