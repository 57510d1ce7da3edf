import { RpcError } from "./rpc-error.ts";

/** What is asked of somebody whom this side has closed for good: "the engine", or a peer by its name. */
export function closedError(name: string): RpcError {
  return new RpcError({ code: "unavailable", message: `${name} has been closed`, origin: "local" });
}
