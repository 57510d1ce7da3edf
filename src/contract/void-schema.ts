import type { Schema } from "./schema.ts";

/** The schema of nothing: what a method has that leaves out `input` or `output`. */
export type VoidSchema = Schema<void, void>;

/**
 * The one schema of nothing. It takes `undefined`, and `null` because not every peer can say `undefined`; it gives
 * `undefined`. Compare by identity to skip encoding and validation altogether.
 */
export const voidSchema: VoidSchema = Object.freeze<VoidSchema>({
  "~standard": Object.freeze({
    version: 1 as const,
    vendor: "cinnabar",
    validate: (value: unknown) =>
      value === undefined || value === null
        ? { value: undefined }
        : {
            issues: [
              { message: `expected nothing, received ${Array.isArray(value) ? "array" : typeof value}` },
            ],
          },
  }),
});
