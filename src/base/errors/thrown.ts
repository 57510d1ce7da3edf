/*
 * Users' code may throw any value: a symbol, a revoked proxy, an object with getters that throw. Code that handles
 * thrown values inspects them by these functions, which never throw.
 */

/** `thrown instanceof Class`; false where the test itself throws. */
export function isA<T>(thrown: unknown, Class: abstract new (...args: never[]) => T): thrown is T {
  try {
    return thrown instanceof Class;
  } catch {
    return false;
  }
}

/** A thrown value in words: the message of an error, or the value as a text. */
export function textOf(thrown: unknown): string {
  try {
    const text: unknown = thrown instanceof Error ? thrown.message : thrown;
    return String(text);
  } catch {
    return "(cannot be shown)";
  }
}

/**
 * Calls a hook of the user. Its failure must not reach a call: an error that it throws, or with which its promise
 * rejects, is dropped.
 */
export function callHook(hook: () => unknown): void {
  try {
    const said = hook();
    if (said instanceof Promise) said.catch(() => {});
  } catch {
    // Dropped.
  }
}
