import type { Schema } from "cinnabar/standard";

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
