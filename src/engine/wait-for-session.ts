import { RpcError } from "../errors/rpc-error.ts";

/** Somebody must be able to ask for a session, also where nobody is to wait for a place in one. */
const leastWaiting = 1024;

/** How many calls may wait for a session to be opened: as many as may wait in one. */
export function mostWaiting({ maxWaiting }: { readonly maxWaiting: number }): number {
  return Math.max(maxWaiting, leastWaiting);
}

export function tooManyWait(waiting: number, name: string): RpcError {
  return new RpcError({
    code: "resource_exhausted",
    message: `${waiting} calls wait for a session with ${name}, and no more may`,
    origin: "local",
  });
}
