import type { Middleware } from "cinnabar";

/** For a client: keeps answers of idempotent methods for `maxAgeMs`, at most `maxEntries` of them. */
export function cache(maxAgeMs: number, maxEntries = 1000): Middleware {
  const entries = new Map<string, { readonly value: unknown; readonly endMs: number }>();
  return async (call, next) => {
    if (!call.idempotent) return next();
    const key = `${call.peer} ${call.method} ${JSON.stringify(call.input)}`;
    const known = entries.get(key);
    if (known !== undefined && known.endMs > Date.now()) return known.value;
    const value = await next();
    entries.delete(key);
    entries.set(key, { value, endMs: Date.now() + maxAgeMs });
    // The oldest entry is the first.
    if (entries.size > maxEntries) entries.delete(entries.keys().next().value as string);
    return value;
  };
}
