// The entry `cinnabar-bulk/contract/standard`: the fields of contracts, without zod. Nothing here needs Node.

export { bulkStream } from "./plain-schemas.ts";
export type { BulkStreamLike, RemoteStreamLike, StreamDirection } from "./stream-kind.ts";
