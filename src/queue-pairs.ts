/// <reference types="node" preserve="true" />

// The entry `cinnabar/queue-pairs`: connected RDMA queue pairs for packages that speak the protocols of others. No
// engine is needed.

export {
  type MemoryPart,
  type PeerMemory,
  QueuePair,
  QueuePairListener,
  type QueuePairListenerOptions,
  RegisteredMemory,
  type WorkDone,
} from "./fabric/queue-pairs.ts";
