/// <reference types="node" preserve="true" />

// The entry `cinnabar-bulk/standard`: all of the package, without zod.

export { BulkStream, type BulkStreamOptions } from "./byte-stream/bulk-stream.ts";
export { readable, writable } from "./byte-stream/remote-stream.ts";
export * from "./contract/standard.ts";
export { RemoteStream } from "./contract/stream-kind.ts";
