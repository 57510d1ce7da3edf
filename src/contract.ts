// The entry `cinnabar/contract`: what a file of contracts needs, and nothing of Node, so that browsers can share it. The
// schemas of memory, streams and bytes are made by zod, so that they fit into zod's objects.

export { type BulkSchema, bulk } from "./contract/zod-schemas.ts";
export { type BulkStreamSchema, bulkStream } from "./contract/zod-schemas.ts";
export { type BytesSchema, bytes } from "./contract/zod-schemas.ts";
export { type HandleSchema, handle } from "./contract/zod-schemas.ts";
export * from "./contract/standard.ts";
