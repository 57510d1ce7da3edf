import { RpcError } from "../../base/errors/rpc-error.ts";

/** What an engine takes on. Both are true until it drains; then one after the other becomes false. */
export interface DrainGate {
  /** Requests of peers. */
  requests: boolean;
  /** Calls and connects of its own. */
  calls: boolean;
}

/** Made for each call: the caller may go elsewhere at once, for nothing has been done. */
export function drainingError(who: string, origin: "local" | "remote"): RpcError {
  return new RpcError({
    code: "unavailable",
    message: `${who} is draining and takes no new calls; this one was not executed`,
    origin,
    notExecuted: true,
  });
}
