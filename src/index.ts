// The entry `cinnabar`: all of `cinnabar/standard`, with the schemas of memory, streams and bytes made by zod, so that
// they fit into zod's objects.

export { bulk } from "./contract/bulk.ts";
export { bulkStream } from "./contract/bulk-stream.ts";
export { bytes } from "./contract/bytes.ts";
export { handle } from "./contract/handle.ts";
export * from "./standard.ts";
