export { type DnsResolverOptions, dnsResolver } from "./balance/dns-resolver.ts";
export type { EjectionOptions } from "./balance/outlier.ts";
export type { Candidate, Policy, PolicyName } from "./balance/policy.ts";
export { type Resolver, type ResolverListener, staticResolver } from "./balance/resolver.ts";
export type { MemoryKind } from "./bulk/device-memory.ts";
export type { TransferProgress } from "./bulk/movement.ts";
export type { Notice } from "./bulk/notices.ts";
export type { Pool, PoolStats, TakeOptions } from "./bulk/pool.ts";
export type { PooledMemory, ViewConstructor } from "./bulk/pooled-memory.ts";
export type { PullType } from "./bulk/pull.ts";
export { Region } from "./bulk/region.ts";
export { RegionHandle, type ShareOptions } from "./bulk/region-handle.ts";
export type { Access } from "./bulk/region-kind.ts";
export type { RegistrationStats } from "./bulk/registration-cache.ts";
export { RemoteRegion } from "./bulk/remote-region.ts";
export { RemoteStream } from "./bulk/remote-stream.ts";
export type { StreamDirection } from "./bulk/stream-kind.ts";
export type { Transfer } from "./bulk/transfer.ts";
export type {
  GetPart,
  LocalMemory,
  PullOptions,
  PutOptions,
  PutPart,
  TransferControl,
  TransferOptions,
  TransferRange,
} from "./bulk/transfer-options.ts";
export type { CallOptions, ClientOptions, WhenFull } from "./client/call-options.ts";
export type { Client } from "./client/client.ts";
export type { RetryBudgetOptions } from "./client/retry-budget.ts";
export type { ClientRetryOptions, HedgeOptions, RetryOptions } from "./client/retry-policy.ts";
export { bulk } from "./contract/bulk.ts";
export { bulkStream } from "./contract/bulk-stream.ts";
export { bytes } from "./contract/bytes.ts";
export { handle } from "./contract/handle.ts";
export type {
  CallResult,
  DeclaredError,
  ErrorsOf,
  HandlerInputOf,
  HandlerOutputOf,
  HandlersOf,
  InputOf,
  OutputOf,
} from "./contract/infer.ts";
export { isError } from "./contract/is-error.ts";
export type { Schema, StandardSchemaV1 } from "./contract/schema.ts";
export { type AnyService, type Service, service } from "./contract/service.ts";
export { type UnaryMethod, type UnaryOptions, unary } from "./contract/unary.ts";
export { type Closable, type CloseOnSignalsOptions, closeOnSignals } from "./engine/close-on-signals.ts";
export type { DrainOptions, DrainReport } from "./engine/drain.ts";
export { Engine, type ExposeOptions } from "./engine/engine.ts";
export type { GroupOptions } from "./engine/group-options.ts";
export type { LaneOptions } from "./engine/lane-options.ts";
export type { ConnectOptions } from "./engine/links.ts";
export type { EngineLimits, EngineOptions } from "./engine/options.ts";
export type { Peer, PeerState, PeerStats } from "./engine/peer.ts";
export type { PeerEvents } from "./engine/peer-events.ts";
export type { GroupMemberStats, PeerGroup } from "./engine/peer-group.ts";
export type { ReconnectOptions } from "./engine/reconnect.ts";
export type { EngineStats, PortStats } from "./engine/stats.ts";
export type { WindowOptions } from "./engine/window-options.ts";
export type { RpcCode } from "./errors/code.ts";
export {
  type FabricDetail,
  RpcError,
  type RpcErrorOptions,
  type RpcErrorOrigin,
} from "./errors/rpc-error.ts";
export type { AuthKeyOptions } from "./fabric/auth-keys.ts";
export type { ConnectionEvent, ConnectionEventName } from "./fabric/connection-events.ts";
export {
  describeFabrics,
  type FabricReport,
  type FabricsReport,
  type RdmaDeviceReport,
} from "./fabric/fabrics.ts";
export type { ForkSafety } from "./fabric/fork-safety.ts";
export { type ProvidersReport, providers } from "./fabric/libfabric.ts";
export type { LockedMemory } from "./fabric/locked-memory.ts";
export type {
  GrantedAttributes,
  PortDescription,
  PortQueues,
  QueueLevel,
  VerbsDescription,
} from "./fabric/port-queues.ts";
export type { QueuePairAttributes } from "./fabric/queue-pair.ts";
export {
  type QueuePairState,
  type RdmaConnection,
  type RdmaConnectionState,
  type RdmaConnectionsOptions,
  type RdmaQueuePair,
  rdmaConnections,
} from "./fabric/rdma-connections.ts";
export type { RdmaDevice, RdmaGid, RdmaInterface, RdmaPort } from "./fabric/rdma-devices.ts";
export type { VerbsOptions } from "./fabric/verbs-choice.ts";
export type { Priority } from "./flow/priority.ts";
export { type BorrowedPart, BorrowedRegion } from "./memory/borrowed-region.ts";
export type { BorrowOptions } from "./memory/borrowing.ts";
export { BulkStream, type BulkStreamOptions } from "./memory/bulk-stream.ts";
export type { RemoteWord } from "./memory/word.ts";
export type { CallDirection, MethodStats } from "./observe/call-metrics.ts";
export type { Counters } from "./observe/counters.ts";
export { Histogram, type HistogramData, type HistogramSummary } from "./observe/histogram.ts";
export type { SlowCall, SlowPhase } from "./observe/slow-call.ts";
export type { AdmissionOptions } from "./server/admission-options.ts";
export type { AdmissionStats, QueuedClass, ShedCause } from "./server/admission-stats.ts";
export type { CallContext } from "./server/call-context.ts";
export type { HandlerErrorListener } from "./server/dispatcher.ts";
export { type Implementation, implement } from "./server/implement.ts";
export type { WindowStats } from "./session/in-flight-window.ts";
export type { SessionLimits } from "./session/limits.ts";
export type { OpenCall, OpenCallPhase } from "./session/open-call.ts";
export type { WaitingLevel } from "./session/waiting-calls.ts";
