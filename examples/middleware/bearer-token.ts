import { contextKey, type Middleware, RpcError } from "cinnabar";

/** The user that `requireToken` has found, for handlers: `call.context.get(currentUser)`. */
export const currentUser = contextKey<{ readonly id: string }>("user");

/**
 * For a client: sends the token, and asks for a new one when the server refuses it once. It does not send a token over
 * a network where an attacker could read it.
 */
export function sendToken(token: (refresh: boolean) => Promise<string>): Middleware {
  return async (call, next) => {
    if (!call.isConfidential)
      throw new RpcError({
        code: "failed_precondition",
        message: `a token is not sent to ${call.peer} over an unsealed session; give the engine \`security\``,
        notExecuted: true,
      });
    call.metadata.set("authorization", `Bearer ${await token(false)}`);
    try {
      return await next();
    } catch (error) {
      if ((error as { code?: string }).code !== "unauthenticated") throw error;
      call.metadata.set("authorization", `Bearer ${await token(true)}`);
      return next();
    }
  };
}

/** For a server: refuses calls without a token that `verify` knows. */
export function requireToken(verify: (token: string) => Promise<{ id: string } | undefined>): Middleware {
  return async (call, next) => {
    const token = /^Bearer (\S+)$/.exec(call.metadata.get("authorization") ?? "")?.[1];
    const user = token === undefined ? undefined : await verify(token);
    if (user === undefined)
      throw new RpcError({ code: "unauthenticated", message: "the token is not known" });
    call.context.set(currentUser, user);
    return next();
  };
}
