// The entry `cinnabar-bulk/contract`: the fields of contracts, made by zod, so that they fit into zod's objects. Nothing
// here needs Node, so browsers can share a file of contracts.

export * from "./contract/standard.ts";
export { type BulkStreamSchema, bulkStream } from "./contract/zod-schemas.ts";
