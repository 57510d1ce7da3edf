// The entry `cinnabar`: all of `cinnabar/standard`, with the schemas of memory, streams and bytes made by zod, so that
// they fit into zod's objects.

export {
  type BulkSchema,
  type BulkStreamSchema,
  type BytesSchema,
  bulk,
  bulkStream,
  bytes,
  type HandleSchema,
  handle,
} from "./contract.ts";
export * from "./standard.ts";
