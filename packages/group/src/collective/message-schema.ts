import type { Schema } from "cinnabar/standard";

/** Whether a field's value is one; `whole` is the message. */
export type FieldChecks<T> = { readonly [K in keyof T]-?: (value: unknown, whole: T) => boolean };

/**
 * The schema of a message of this package. Messages are not trusted: one with a field that fails a check is refused
 * before it is used.
 */
export function messageSchema<T extends object>(what: string, checks: FieldChecks<T>): Schema<T> {
  const names = Object.keys(checks) as (keyof T & string)[];
  const passes = Object.values(checks) as FieldChecks<T>[keyof T][];
  return Object.freeze({
    "~standard": Object.freeze({
      version: 1 as const,
      vendor: "cinnabar-group",
      validate(value: unknown) {
        if (typeof value !== "object" || value === null) return { issues: [{ message: `expected ${what}` }] };
        const whole = value as T;
        // Each message passes here twice, and most processes have it seldom: nothing is made for a field.
        for (let i = 0; i < names.length; i++) {
          const name = names[i] as keyof T & string;
          if (!passes[i]?.(whole[name], whole))
            return { issues: [{ message: `not that of ${what}`, path: [name] }] };
        }
        return { value: whole };
      },
    }),
  });
}

/** How many bytes of a region the sender has, from the first on. */
export const offerSchema: Schema<number> = Object.freeze({
  "~standard": Object.freeze({
    version: 1 as const,
    vendor: "cinnabar-group",
    validate: (value: unknown) =>
      Number.isSafeInteger(value) && (value as number) >= 0
        ? { value: value as number }
        : { issues: [{ message: "expected a number of bytes" }] },
  }),
});
