// The entry `cinnabar/contract`: what a file of contracts needs, and nothing of Node, so that browsers can share it. The
// schemas of memory and bytes are made by zod, so that they fit into zod's objects.

export * from "./contract/standard.ts";
export {
  type BulkSchema,
  type BytesSchema,
  bulk,
  bytes,
  type HandleSchema,
  handle,
} from "./contract/zod-schemas.ts";
