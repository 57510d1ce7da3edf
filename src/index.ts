// The entry `cinnabar`: all of `cinnabar/standard`, with schemas of memory and bytes made by zod, so that they fit into
// zod's objects.

export {
  type BulkSchema,
  type BytesSchema,
  bulk,
  bytes,
  type HandleSchema,
  handle,
} from "./contract.ts";
export * from "./standard.ts";
