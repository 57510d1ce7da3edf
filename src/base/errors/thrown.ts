/*
 * What users' code throws may be anything: a symbol, a proxy that was revoked, an object whose getters throw. Whoever
 * handles it looks at it by these functions, which never throw.
 */

/** `thrown instanceof Class`; false where the look itself throws. */
export function isA<T>(thrown: unknown, Class: abstract new (...args: never[]) => T): thrown is T {
  try {
    return thrown instanceof Class;
  } catch {
    return false;
  }
}

/** What is thrown, in words: the message of an error, or the value as a text. */
export function textOf(thrown: unknown): string {
  try {
    const text: unknown = thrown instanceof Error ? thrown.message : thrown;
    return String(text);
  } catch {
    return "(cannot be shown)";
  }
}

/**
 * Calls a hook of the user, whose failure must not reach a call: what it throws, or what its promise rejects with, is
 * dropped.
 */
export function callHook(hook: () => unknown): void {
  try {
    const said = hook();
    if (said instanceof Promise) said.catch(() => {});
  } catch {
    // As said.
  }
}
