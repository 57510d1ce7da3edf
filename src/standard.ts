/// <reference types="node" preserve="true" />

// The entry `cinnabar/standard`: all of the package, without zod. Its declarations name types of Node. TypeScript then
// finds these types without a `types` entry in the user's tsconfig.json.

export type { Logger } from "./base/observe/call-log.ts";
export { Histogram } from "./base/observe/histogram.ts";
export type { Clock, WakeUp } from "./base/time/clock.ts";
export type { CallPromise } from "./call/call-operations.ts";
export { type ContextKey, ContextValues, contextKey } from "./call/context-values.ts";
export type { EngineMiddleware, Middleware, MiddlewareCall, Next } from "./call/middleware.ts";
export type {
  CallOptions,
  ClientCallOptions,
  ClientOptions,
  StreamCallOptions,
} from "./client/call-options.ts";
export type { Client } from "./client/client.ts";
export type { SessionPeer, SessionPeerState } from "./client/session-peer.ts";
export type { BalancedPeer } from "./connect/balanced-peer.ts";
export type { ConnectOptions } from "./connect/connect-options.ts";
export type { Peer } from "./connect/peer.ts";
export type { PeerEvents, PeerState } from "./connect/peer-state.ts";
export type { Candidate, Policy } from "./connect/policy.ts";
export {
  dnsResolver,
  type FoundEngine,
  type Resolver,
  type ResolverListener,
  staticResolver,
} from "./connect/resolver.ts";
export * from "./contract/standard.ts";
export { type Closable, closeOnSignals } from "./engine/close-on-signals.ts";
export type { DrainReport } from "./engine/drain.ts";
export { Engine, type EngineOptions } from "./engine/engine.ts";
export type { EngineEvents, SessionEvent } from "./engine/engine-events.ts";
export type { EngineHealth } from "./engine/engine-health.ts";
export type { MappedFile } from "./memory/mapped-file.ts";
export { OwnMemory, type Pool, type PooledMemory, type ViewConstructor } from "./memory/pool.ts";
export type { PutNotification } from "./memory/put-notification.ts";
export { Region } from "./memory/region.ts";
export { RegionHandle } from "./memory/region-handle.ts";
export type { RegionKeys } from "./memory/region-kind.ts";
export { RemoteRegion } from "./memory/remote-region.ts";
export type { Allow, Authorize, AuthorizedCall } from "./security/authorization-options.ts";
export type { Certificate } from "./security/certificate.ts";
export type {
  CertificateIdentity,
  Identify,
  Identity,
  LocalIdentity,
  ProcessIdentity,
  PskIdentity,
} from "./security/identity.ts";
export type { SecurityOptions } from "./security/security-options.ts";
export type { CallContext, HandlerCall } from "./server/call-context.ts";
export type { FailedCall, HandlerErrorListener } from "./server/handler-error-log.ts";
export type { ServiceHealth } from "./server/health-book.ts";
export { type Implementation, implement } from "./server/implement.ts";
export { type BorrowedPart, BorrowedRegion } from "./transfer/handles/borrowing.ts";
export type { Transfer } from "./transfer/transfer.ts";
export type { TransferProgress } from "./transfer/transfer-operation.ts";
export type { LocalMemory } from "./transfer/transfer-options.ts";
export { Metadata, type MetadataInit } from "./wire/metadata/metadata.ts";
