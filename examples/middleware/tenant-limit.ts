import { type Middleware, RpcError } from "cinnabar";

/** For a server: runs at most `most` handlers at once for each tenant. Callers are asked to wait and try again. */
export function tenantLimit(most: number, retryAfterMs = 50): Middleware {
  const running = new Map<string, number>();
  return async (call, next) => {
    const tenant = call.metadata.get("x-tenant") ?? "";
    const count = running.get(tenant) ?? 0;
    if (count >= most) {
      const message = `tenant "${tenant}" has ${most} calls running`;
      throw new RpcError({ code: "resource_exhausted", message, retryAfterMs });
    }
    running.set(tenant, count + 1);
    try {
      return await next();
    } finally {
      const left = (running.get(tenant) ?? 1) - 1;
      if (left === 0) running.delete(tenant);
      else running.set(tenant, left);
    }
  };
}
