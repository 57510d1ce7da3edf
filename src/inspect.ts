/// <reference types="node" preserve="true" />

// The entry `cinnabar/inspect`: reports on this machine and this process, for operators and tools. No engine is needed.
// It also has the types of an engine's reports: `stats()` with its parts, open calls, diagnostics.

export type { WindowStats } from "./base/flow/in-flight-window.ts";
export type { MethodStats } from "./base/observe/call-metrics.ts";
export type { CallDirection, CallPhase, SlowCall } from "./base/observe/channels.ts";
export type { Counters } from "./base/observe/counters.ts";
export type { HistogramData, HistogramSummary } from "./base/observe/histogram.ts";
export type { SessionPeerStats } from "./client/session-peer.ts";
export type { BackendStats, PeerStats } from "./connect/peer-state.ts";
export { type JsonSchema, jsonSchemaOf } from "./contract/json-schema.ts";
export type { MappedFilesStats } from "./engine/exposed-memory.ts";
export type { OpenCall, OpenCallPhase } from "./engine/open-call.ts";
export type { EngineSettings } from "./engine/options.ts";
export type { SessionStats } from "./engine/session-stats.ts";
export type { EngineStats, PortStats, StatsOptions } from "./engine/stats.ts";
export type { DomainReport, PatchReport, ProviderReport } from "./fabric/libfabric/addon.ts";
export type { Origin } from "./fabric/libfabric/candidates.ts";
export {
  type AddonAttempt,
  type BuiltInReport,
  type LoadReport,
  type ProvidersReport,
  providers,
} from "./fabric/libfabric/libfabric.ts";
export type {
  ConnectionCounts,
  GrantedAttributes,
  PortDescription,
  PortQueues,
  QueueLevel,
} from "./fabric/libfabric/port-report.ts";
export type { HostScheme, NativeScheme, NodeScheme, SocketScheme } from "./fabric/libfabric/url.ts";
export type { Absences, PortGauges } from "./fabric/port.ts";
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
  type RdmaDeviceReport,
  version,
} from "./fabric/rdma/fabrics.ts";
export type { ForkSafety, LockedMemory } from "./fabric/rdma/pinned-memory.ts";
export type { PoolStats } from "./memory/pool.ts";
export type { QuarantinedMemory } from "./memory/region-core.ts";
export type { RegistrationStats } from "./memory/registration-cache.ts";
export { describeSealing, type SealingReport } from "./security/sealing/describe-sealing.ts";
export type { SecurityRefusal, SecurityRefused, SecurityStats } from "./security/security-meter.ts";
export type { AdmissionStats, ShedCause } from "./server/admission.ts";
export type { CallsGauge, Traffic } from "./session/calls/traffic.ts";
