import type { Schema } from "cinnabar/standard";

/** Whether a field's value is one; `whole` is the message. */
export type FieldChecks<T> = { readonly [K in keyof T]: (value: unknown, whole: T) => boolean };

/**
 * The schema of a message of this package. Nothing that arrives is trusted: a message whose fields do not pass all
 * checks is refused before anything is made of it.
 */
export function messageSchema<T extends object>(what: string, checks: FieldChecks<T>): Schema<T> {
  const fields = Object.entries(checks) as [keyof T & string, FieldChecks<T>[keyof T]][];
  return Object.freeze({
    "~standard": Object.freeze({
      version: 1 as const,
      vendor: "cinnabar-group",
      validate(value: unknown) {
        if (typeof value !== "object" || value === null) return { issues: [{ message: `expected ${what}` }] };
        const whole = value as T;
        const wrong = fields.find(([name, check]) => !check(whole[name], whole));
        if (wrong === undefined) return { value: whole };
        return { issues: [{ message: `not that of ${what}`, path: [wrong[0]] }] };
      },
    }),
  });
}
