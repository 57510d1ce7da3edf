// The entry `cinnabar-bulk`: all of `cinnabar-bulk/standard`, with the fields of contracts made by zod.

export { type BulkStreamSchema, bulkStream } from "./contract.ts";
export * from "./standard.ts";
