/// <reference lib="esnext.disposable" preserve="true" />

// The entry `cinnabar/contract/standard`: all of `cinnabar/contract`, without zod. Neither the code nor the
// declarations may need Node. The declarations name `Symbol.asyncDispose`, which some `lib` settings in a tsconfig.json
// lack.

export type { RpcCode } from "../base/errors/code.ts";
export {
  type FabricDetail,
  type ReceivedMetadata,
  RpcError,
  type RpcErrorOptions,
} from "../base/errors/rpc-error.ts";
export type { Priority } from "../base/flow/priority.ts";
export type { RegionHandle } from "../memory/region-handle.ts";
export type { Access, Granting, RegionLike, RemoteRegionLike } from "../memory/region-kind.ts";
export type { MetadataKey, MetadataValue, MetadataValues } from "../wire/metadata/entry.ts";
export type { ByteLengthOptions } from "./byte-length.ts";
export { markCallerMemory } from "./caller-memory.ts";
export {
  type DeclaredErrorOptions,
  type ErrorDeclaration,
  type ErrorDeclarations,
  type ErrorSchemas,
  error,
  type NoErrors,
} from "./declared-error.ts";
export { type FieldSchemas, type FieldsInput, type FieldsOutput, fields } from "./fields.ts";
export type {
  CallContextFor,
  CallResult,
  ClientOf,
  ClientShapes,
  ClientStreamClient,
  DeclaredError,
  DeclaredRpcError,
  DuplexStreamClient,
  ErrorsOf,
  FailData,
  Failing,
  FailOptions,
  HandlerInputOf,
  HandlerItemOf,
  HandlerOutputOf,
  HandlerShapes,
  HandlersOf,
  InputArgument,
  InputOf,
  ItemOf,
  OptionsByKind,
  OutputOf,
  StreamContextFor,
  UnaryClient,
  UndeclaredRpcError,
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
export type {
  AnyMethod,
  Method,
  MethodBase,
  MethodKind,
  StreamWindow,
  StreamWindowOptions,
} from "./method.ts";
export { type OneWayOptions, oneWay } from "./one-way.ts";
export { bulk, bytes, handle } from "./plain-schemas.ts";
export type { InferInput, InferOutput, Schema, StandardSchemaV1, VoidSchema } from "./schema.ts";
export { type AnyService, type MethodMap, type Service, service } from "./service.ts";
export { clientStream, duplexStream, type StreamOptions, serverStream } from "./stream.ts";
export { type UnaryOptions, unary } from "./unary.ts";
