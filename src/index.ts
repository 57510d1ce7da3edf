// The entry `cinnabar`: all of `cinnabar/standard`, with the schemas of memory, streams and bytes made by zod, so that
// they fit into zod's objects.

export { bulk, bulkStream, bytes, handle } from "./contract.ts";
export * from "./standard.ts";
