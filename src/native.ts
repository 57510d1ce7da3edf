/// <reference types="node" preserve="true" />

// The entry `cinnabar/native`: the parts of the addon, and the lock of a socket's file, for packages that build on
// Cinnabar. No engine is needed.

import type { FileAddon } from "./fabric/libfabric/addon.ts";
import { addonIfThere } from "./fabric/libfabric/libfabric.ts";

export { numericHost } from "./fabric/host.ts";
export {
  type FileAddon,
  type NativeError,
  type PageAddon,
  type QueuePairAddon,
  queuePairEvent,
  queuePairWork,
} from "./fabric/libfabric/addon.ts";
export { SocketFile } from "./fabric/net/socket-file.ts";
export {
  type QueuePairFailure,
  queuePairAddon,
  queuePairError,
  queuePairListenError,
} from "./fabric/queue-pair-access.ts";
export { crc32c } from "./transfer/checksum.ts";

/** The addon's functions for files. Undefined where the addon is missing. */
export const fileAddon: () => FileAddon | undefined = addonIfThere;
