/// <reference types="node" preserve="true" />

// The entry `cinnabar/inspect`: reports on this machine and this process, for operators and tools. No engine is needed.

export type { DomainReport, PatchReport, ProviderReport } from "./fabric/libfabric/addon.ts";
export type { Origin } from "./fabric/libfabric/candidates.ts";
export {
  type AddonAttempt,
  type LoadReport,
  type ProvidersReport,
  providers,
} from "./fabric/libfabric/libfabric.ts";
export {
  type QueuePairState,
  type RdmaConnection,
  type RdmaConnectionState,
  type RdmaConnectionsOptions,
  type RdmaQueuePair,
  rdmaConnections,
} from "./fabric/rdma/connections.ts";
export type { RdmaDevice, RdmaGid, RdmaInterface, RdmaPort } from "./fabric/rdma/devices.ts";
export {
  describeFabrics,
  type FabricReport,
  type FabricsReport,
  type MemReport,
  type RdmaDeviceReport,
} from "./fabric/rdma/fabrics.ts";
export type { ForkSafety } from "./fabric/rdma/pinned-memory.ts";
export { describeSealing, type SealingReport } from "./security/sealing/describe-sealing.ts";
