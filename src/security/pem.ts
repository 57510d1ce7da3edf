import type { Field } from "../base/options/options.ts";

/** One or several PEM texts. */
export type Pem = string | Uint8Array | readonly (string | Uint8Array)[];

/** PEM, or a function that reads it: called when the certificates are needed, and again when they are reloaded. */
export type PemSource = Pem | (() => Pem);

/**
 * PEM or a function that reads it. It resolves to a function that reads and checks it. A message never shows the value,
 * which may be a key.
 */
export function pem(): Field<() => readonly Buffer[]> {
  return {
    resolve(where, name, value) {
      if (typeof value === "function") return () => buffersOf(`what ${where}: ${name} returns`, value());
      const buffers = buffersOf(`${where}: ${name}`, value);
      return () => buffers;
    },
  };
}

function buffersOf(where: string, value: unknown): readonly Buffer[] {
  const parts: readonly unknown[] = Array.isArray(value) ? value : [value];
  if (parts.length === 0 || !parts.every((part) => typeof part === "string" || part instanceof Uint8Array))
    throw new TypeError(`${where} must be PEM as a string or bytes, an array of them, or a function`);
  return parts.map((part) => Buffer.from(part as string));
}
