import { fields, oneWay, type Schema, serverStream, service } from "cinnabar/standard";

/** Takes any value: a pattern without a contract has no schema. */
const anyValue: Schema<unknown> = Object.freeze({
  "~standard": Object.freeze({
    version: 1 as const,
    vendor: "cinnabar-nest",
    validate: (value: unknown) => ({ value }),
  }),
});

const pattern: Schema<string> = Object.freeze({
  "~standard": Object.freeze({
    version: 1 as const,
    vendor: "cinnabar-nest",
    validate: (value: unknown) =>
      typeof value === "string" && value.length <= 1024
        ? { value }
        : { issues: [{ message: "a pattern is a text of at most 1024 characters" }] },
  }),
});

/**
 * Messages and events of patterns without a contract. An answer is a stream: only the handler knows how many values its
 * Observable has.
 */
export const NestMessages = service("nest.v1", {
  send: serverStream({ input: fields({ pattern, data: anyValue }), output: anyValue }),
  emit: oneWay({ input: fields({ pattern, data: anyValue }) }),
});
