/// <reference lib="esnext.disposable" preserve="true" />

// The entry `cinnabar/contract/standard`: all of `cinnabar/contract`, without zod. Nothing here may need Node, at run time
// or in the declarations. They name `Symbol.asyncDispose`, which not every `lib` of a user's tsconfig.json has.

export type { StreamDirection } from "../byte-stream/stream-kind.ts";
export type { RpcCode } from "../errors/code.ts";
export {
  type ErrorMetadata,
  type FabricDetail,
  RpcError,
  type RpcErrorOptions,
  type RpcErrorOrigin,
} from "../errors/rpc-error.ts";
export type { Priority } from "../flow/priority.ts";
export type { Access } from "../memory/region-kind.ts";
export type { MetadataKey, MetadataValue } from "../metadata/entry.ts";
export { fields } from "./fields.ts";
export type {
  CallResult,
  DeclaredError,
  ErrorsOf,
  HandlerInputOf,
  HandlerItemOf,
  HandlerOutputOf,
  HandlersOf,
  InputOf,
  ItemOf,
  OutputOf,
} from "./infer.ts";
export { isError } from "./is-error.ts";
export type {
  ClientStreamWriter,
  DuplexStreamWriter,
  ItemSource,
  ItemStream,
  ItemWriter,
} from "./item-stream.ts";
export { metadataKey } from "./metadata-key.ts";
export type { StreamWindow } from "./method.ts";
export { type OneWayMethod, type OneWayOptions, oneWay } from "./one-way.ts";
export { bulk, bulkStream, bytes, handle } from "./plain-schemas.ts";
export type { Schema, StandardSchemaV1 } from "./schema.ts";
export { type AnyService, type Service, service } from "./service.ts";
export {
  type ClientStreamMethod,
  type ClientStreamOptions,
  clientStream,
  type DuplexStreamMethod,
  type DuplexStreamOptions,
  duplexStream,
  type ServerStreamMethod,
  type ServerStreamOptions,
  serverStream,
} from "./stream.ts";
export { type UnaryMethod, type UnaryOptions, unary } from "./unary.ts";
