// The entry `cinnabar/contract`: everything that a file of contracts needs. It needs no module of Node, so browsers can
// share it. zod makes the schemas of memory and bytes, so that they fit into zod's objects.

export * from "./contract/standard.ts";
export {
  type BulkSchema,
  type BytesSchema,
  bulk,
  bytes,
  type HandleSchema,
  handle,
} from "./contract/zod-schemas.ts";
