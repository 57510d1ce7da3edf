/// <reference types="node" preserve="true" />

// The entry `cinnabar/standard`: all of the package, without zod. Its declarations name types of Node, which TypeScript
// then finds although no `types` of a user's tsconfig.json does.

export type { EngineLimits } from "./base/flow/engine-limits.ts";
export type { WindowOptions } from "./base/flow/in-flight-window.ts";
export type { RetryBudgetOptions } from "./base/flow/retry-budget.ts";
export type { Logger } from "./base/observe/call-log.ts";
export type { CallPhase, SlowCall } from "./base/observe/channels.ts";
export { Histogram, type HistogramData } from "./base/observe/histogram.ts";
export type { Clock, WakeUp } from "./base/time/clock.ts";
export type { Compression, CompressionOptions } from "./call/compression.ts";
export { type ContextKey, ContextValues, contextKey } from "./call/context-values.ts";
export type { EngineMiddleware, Middleware, MiddlewareCall, Next } from "./call/middleware.ts";
export type {
  CallOptions,
  ClientCallOptions,
  ClientOptions,
  StreamCallOptions,
} from "./client/call-options.ts";
export type { Client } from "./client/client.ts";
export type {
  ClientRetryOptions,
  HedgeOptions,
  RetryOptions,
} from "./client/retry-policy.ts";
export type { BalancedPeer } from "./connect/balanced-peer.ts";
export type {
  BalanceOptions,
  ConnectOptions,
  KeyOf,
  ReconnectOptions,
} from "./connect/connect-options.ts";
export type { EjectionOptions } from "./connect/outlier.ts";
export type { Peer } from "./connect/peer.ts";
export type { PeerEvents, PeerState, PeerStats } from "./connect/peer-state.ts";
export type { Candidate, Policy, PolicyName } from "./connect/policy.ts";
export {
  type DnsResolverOptions,
  dnsResolver,
  type Resolver,
  type ResolverListener,
  staticResolver,
} from "./connect/resolver.ts";
export * from "./contract/standard.ts";
export { type Closable, type CloseOnSignalsOptions, closeOnSignals } from "./engine/close-on-signals.ts";
export type { DrainOptions, DrainReport } from "./engine/drain.ts";
export { Engine, type EngineOptions, type ExposeOptions } from "./engine/engine.ts";
export type { EngineEvents, SessionEvent } from "./engine/engine-events.ts";
export type { EngineHealth } from "./engine/engine-health.ts";
export type { OpenCall, OpenCallPhase } from "./engine/open-call.ts";
export type { EngineOptionsOf } from "./engine/options.ts";
export type { EngineStats, StatsOptions } from "./engine/stats.ts";
export type { ConnectionEvent, ConnectionEventName } from "./fabric/rdma/connection-events.ts";
export type { VerbsOptions } from "./fabric/rdma/verbs-choice.ts";
export type { MapFileOptions, MappedFile } from "./memory/mapped-file.ts";
export type { Pool, PooledMemory, TakeOptions, ViewConstructor } from "./memory/pool.ts";
export type { PutNotification } from "./memory/put-notification.ts";
export { Region } from "./memory/region.ts";
export type { QuarantinedMemory } from "./memory/region-core.ts";
export { RegionHandle, type ShareOptions } from "./memory/region-handle.ts";
export type { RegionKeys } from "./memory/region-kind.ts";
export { RemoteRegion } from "./memory/remote-region.ts";
export type { Allow, Authorize, AuthorizedCall } from "./security/authorization-options.ts";
export type { Certificate } from "./security/certificate.ts";
export type { Pem, PemSource, PskOptions, TlsOptions } from "./security/credential-options.ts";
export type {
  CertificateIdentity,
  Identify,
  Identity,
  LocalIdentity,
  ProcessIdentity,
  PskIdentity,
} from "./security/identity.ts";
export type { SuiteName } from "./security/sealing/suites.ts";
export type { SecurityRefused } from "./security/security-meter.ts";
export type { HandshakeOptions, SecurityOptions } from "./security/security-options.ts";
export type { AdmissionOptions } from "./server/admission-options.ts";
export type { CallContext, HandlerCall } from "./server/call-context.ts";
export type { FailedCall, HandlerErrorListener } from "./server/handler-error-log.ts";
export type { ServiceHealth } from "./server/health-book.ts";
export { type Implementation, type ImplementOptions, implement } from "./server/implement.ts";
export { BulkStream, type BulkStreamOptions } from "./transfer/byte-stream/bulk-stream.ts";
export { RemoteStream } from "./transfer/byte-stream/remote-stream.ts";
export type { BorrowOptions } from "./transfer/handles/borrowing.ts";
export { type BorrowedPart, BorrowedRegion } from "./transfer/handles/borrowing.ts";
export type { Transfer } from "./transfer/transfer.ts";
export type { TransferProgress } from "./transfer/transfer-operation.ts";
export type {
  GetPart,
  LocalMemory,
  PullOptions,
  PutOptions,
  PutPart,
  TransferControl,
  TransferOptions,
  TransferRange,
} from "./transfer/transfer-options.ts";
export type { RemoteWord } from "./transfer/word.ts";
export { Metadata, type MetadataInit } from "./wire/metadata/metadata.ts";
