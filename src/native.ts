/// <reference types="node" preserve="true" />

// The entry `cinnabar/native`: the parts of the addon for packages that build on Cinnabar. No engine is needed.

export { numericHost } from "./fabric/host.ts";
export type { NativeError } from "./fabric/libfabric/native-error.ts";
export type { PageAddon } from "./fabric/libfabric/page-addon.ts";
export { type QueuePairAddon, queuePairEvent, queuePairWork } from "./fabric/libfabric/queue-pair-addon.ts";
export {
  type QueuePairFailure,
  queuePairAddon,
  queuePairError,
  queuePairListenError,
} from "./fabric/queue-pair-access.ts";
export { crc32c } from "./transfer/checksum.ts";
