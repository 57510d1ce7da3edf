// The entry `cinnabar/contract`: what a file of contracts needs, and nothing of Node, so that browsers can share it. The
// schemas of memory, streams and bytes are made by zod, so that they fit into zod's objects.

export { type BulkSchema, bulk } from "./contract/bulk.ts";
export { type BulkStreamSchema, bulkStream } from "./contract/bulk-stream.ts";
export { type BytesSchema, bytes } from "./contract/bytes.ts";
export { type HandleSchema, handle } from "./contract/handle.ts";
export * from "./contract/standard.ts";
