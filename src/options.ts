/// <reference types="node" preserve="true" />

// The entry `cinnabar/options`: the types of option objects that are part of others or belong to one function. For
// packages that build on Cinnabar it also has the checker of option objects, the validation by a schema and the list of
// error codes.

export { codeNumbers, isRpcCode } from "./base/errors/code.ts";
export type { EngineLimits, LimitOptions, SettableLimit } from "./base/flow/engine-limits.ts";
export { memoryShare } from "./base/flow/engine-limits.ts";
export type { WindowOptions } from "./base/flow/in-flight-window.ts";
export type { RetryBudgetOptions } from "./base/flow/retry-budget.ts";
export {
  anything,
  boolean,
  type Complete,
  callback,
  checkedBy,
  checkOptions,
  completed,
  type Defaulted,
  type Field,
  type Fields,
  type FieldsOf,
  fail,
  group,
  instance,
  integer,
  list,
  maxTimeoutMs,
  milliseconds,
  nearest,
  number,
  oneOf,
  orFalse,
  type Resolved,
  required,
  resolveNested,
  resolveOptions,
  shown,
  text,
} from "./base/options/options.ts";
export type { ClientRetryOptions, RetryOptions } from "./client/retry-policy.ts";
export type { BalanceOptions, EjectionOptions, KeyOf, ReconnectOptions } from "./connect/connect-options.ts";
export type { PolicyName } from "./connect/policy.ts";
export type { DnsResolverOptions } from "./connect/resolver.ts";
export { type Issue, type Validation, validate } from "./contract/schema.ts";
export type { CloseOnSignalsOptions } from "./engine/close-on-signals.ts";
export type { DrainOptions } from "./engine/drain.ts";
export type { ExposeOptions } from "./engine/engine.ts";
export type { EngineOptionsOf } from "./engine/options.ts";
export type { VerbsOptions } from "./fabric/rdma/verbs-choice.ts";
export type { MapFileOptions } from "./memory/mapped-file.ts";
export type { TakeOptions } from "./memory/pool.ts";
export type { ShareOptions } from "./memory/region-handle.ts";
export type { OnGranted } from "./memory/region-kind.ts";
export type { PskOptions, TlsOptions } from "./security/credential-options.ts";
export { type Pem, type PemSource, pem } from "./security/credential-options.ts";
export type { SuiteName } from "./security/sealing/suites.ts";
export type { HandshakeOptions } from "./security/security-options.ts";
export type { AdmissionOptions } from "./server/admission-options.ts";
export { type ImplementOptions, isImplementation } from "./server/implement.ts";
export type { BorrowOptions } from "./transfer/handles/borrowing.ts";
export type {
  GetPart,
  PullOptions,
  PutOptions,
  PutPart,
  TransferControl,
  TransferOptions,
  TransferRange,
} from "./transfer/transfer-options.ts";
