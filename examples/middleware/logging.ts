import { type Middleware, RpcError } from "cinnabar";

/** Prints each call with its outcome and its time. Works at the client and at the server. */
export function logging(print: (line: string) => void = console.log): Middleware {
  return async (call, next) => {
    const start = performance.now();
    let outcome = "ok";
    try {
      return await next();
    } catch (error) {
      // A declared error has a reason beside its code, at the client and at the server.
      outcome = error instanceof RpcError ? [error.code, error.reason].filter(Boolean).join(" ") : "failed";
      throw error;
    } finally {
      print(`${call.side} ${call.method} ${outcome} ${(performance.now() - start).toFixed(1)} ms`);
    }
  };
}
