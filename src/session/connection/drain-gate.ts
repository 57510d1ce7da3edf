import { RpcError } from "../../base/errors/rpc-error.ts";

/**
 * The new work that an engine accepts. Both are true until the engine drains; then they become false one after the
 * other.
 */
export interface DrainGate {
  /** Requests of peers. */
  requests: boolean;
  /** The engine's own calls and connects. */
  calls: boolean;
}

/** Made for each call: the caller may call another peer at once, because nothing was executed. */
export function drainingError(who: string, origin: "local" | "remote"): RpcError {
  return new RpcError({
    code: "unavailable",
    message: `${who} is draining and takes no new calls; this one was not executed`,
    origin,
    notExecuted: true,
  });
}
