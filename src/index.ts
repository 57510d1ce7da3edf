export { Region } from "./bulk/region.ts";
export type { Access } from "./bulk/region-kind.ts";
export { RemoteRegion } from "./bulk/remote-region.ts";
export type { LocalMemory, TransferOptions } from "./bulk/transfer.ts";
export type { CallOptions, ClientOptions } from "./client/call-options.ts";
export type { Client } from "./client/client.ts";
export type { RetryBudgetOptions } from "./client/retry-budget.ts";
export type { ClientRetryOptions, HedgeOptions, RetryOptions } from "./client/retry-policy.ts";
export { bulk } from "./contract/bulk.ts";
export { bytes } from "./contract/bytes.ts";
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
export { type ConnectOptions, Engine, type ExposeOptions } from "./engine/engine.ts";
export type { EngineOptions } from "./engine/options.ts";
export type { Peer, PeerState, PeerStats } from "./engine/peer.ts";
export type { EngineStats, PortStats } from "./engine/stats.ts";
export type { RpcCode } from "./errors/code.ts";
export {
  type FabricDetail,
  RpcError,
  type RpcErrorOptions,
  type RpcErrorOrigin,
} from "./errors/rpc-error.ts";
export { type ProvidersReport, providers } from "./fabric/libfabric.ts";
export type { Counters } from "./observe/counters.ts";
export type { CallContext } from "./server/call-context.ts";
export type { HandlerErrorListener } from "./server/dispatcher.ts";
export { type Implementation, implement } from "./server/implement.ts";
export type { SessionLimits } from "./session/limits.ts";
