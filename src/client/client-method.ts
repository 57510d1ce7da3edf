import { codeToNumber, okNumber, type RpcCode } from "../base/errors/code.ts";
import type { Priority } from "../base/flow/priority.ts";
import type { RetryBudget } from "../base/flow/retry-budget.ts";
import type { MethodMetrics } from "../base/observe/call-metrics.ts";
import { currentCall } from "../call/current-call.ts";
import type { IncomingCall } from "../call/incoming-call.ts";
import type { RequestTerms } from "../call/outgoing-call.ts";
import type { AnyMethod } from "../contract/method.ts";
import { isVoidSchema, type Validator, validatorOf } from "../contract/schema.ts";
import type { MethodNumbers } from "../session/connection/method-numbers.ts";
import { builtinMethods } from "../wire/builtin.ts";
import { methodKindNumbers } from "../wire/handshake.ts";
import { inherit, Metadata, packMetadata, passesOn, replaceEntries } from "../wire/metadata/metadata.ts";
import type { CallOptions } from "./call-options.ts";
import { type AttemptOptions, type RetryPolicy, resolvePolicy } from "./retry-policy.ts";
import type { SessionSource } from "./session-source.ts";

/** The terms that all methods of a client share. */
export interface ClientTerms {
  readonly source: SessionSource;
  /** The client's options for attempts. */
  readonly attempts: AttemptOptions;
  readonly budget: RetryBudget;
  readonly inherit: boolean;
  readonly whenFull: "wait" | "fail";
  /** Undefined: each method's own. */
  readonly priority: Priority | undefined;
  /** The key of every call for the policy of a balanced peer. Undefined: what `keyOf` gives. */
  readonly key: string | undefined;
  /** The metadata of every call. */
  readonly metadata: Metadata | undefined;
}

/** The metadata of a call: its own, its client's and inherited entries. It is complete. */
export class MergedMetadata extends Metadata {}

/** Indexed by the number of the kind. */
const kindNames = [
  "a unary method",
  "a server stream",
  "a client stream",
  "a duplex stream",
  "a one-way method",
] as const;

/** One method of one client, with all that its calls share. It serves as the terms of calls without options. */
export class ClientMethod implements RequestTerms {
  readonly source: SessionSource;
  readonly service: string;
  readonly name: string;
  /** `service/method`, for errors. */
  readonly path: string;
  /** The time limit of a call without its own; `Infinity` for a stream without a limit. */
  readonly timeoutMs: number;
  readonly metrics: MethodMetrics;
  /** The method as its service declares it. */
  readonly contract: AnyMethod;
  /** The fixed number of a method of a built-in service. 0 for other methods: each peer numbers them. */
  readonly builtinNumber: number;
  readonly inputValidator: Validator;
  readonly outputValidator: Validator;
  /** True when the method declares no input: callers pass none, and nothing is checked or encoded. */
  readonly takesNothing: boolean;
  readonly returnsNothing: boolean;
  /** Whether calls inherit from the call being served. */
  readonly inherit: boolean;
  readonly priority: Priority;
  readonly failsWhenFull: boolean;
  readonly isOneWay: boolean;
  /** True for a method of a built-in service: its calls are control requests, in no window and no list. */
  readonly isBuiltin: boolean;
  readonly key: string | undefined;
  /** The metadata of every call, and its block. */
  readonly #metadata: Metadata | undefined;
  readonly block: Uint8Array | undefined;
  /** The attempts of calls without their own. Undefined: one attempt. */
  readonly policy: RetryPolicy | undefined;
  readonly budget: RetryBudget;
  /** The method numbers of the last look-up. */
  #numbers: MethodNumbers | undefined;
  #edition = 0;
  #number = -1;
  readonly #attempts: AttemptOptions;

  constructor(
    { source, attempts, budget, inherit, whenFull, priority, key, metadata }: ClientTerms,
    service: string,
    name: string,
    path: string,
    contract: AnyMethod,
    timeoutMs: number,
  ) {
    this.source = source;
    this.service = service;
    this.name = name;
    this.path = path;
    this.contract = contract;
    const builtin = builtinMethods[path];
    this.builtinNumber = builtin?.kind === contract.kind ? builtin.number : 0;
    const isStream = contract.kind !== "unary" && contract.kind !== "oneWay";
    this.timeoutMs = isStream ? (contract.timeoutMs ?? Number.POSITIVE_INFINITY) : timeoutMs;
    this.metrics = source.engine.metrics.of(path, "out");
    this.takesNothing = isVoidSchema(contract.input);
    this.returnsNothing = isVoidSchema(contract.output);
    this.inherit = inherit;
    this.failsWhenFull = whenFull === "fail";
    this.isOneWay = contract.kind === "oneWay";
    this.isBuiltin = this.builtinNumber !== 0;
    this.priority = priority ?? contract.priority;
    this.key = key;
    this.#metadata = metadata;
    this.block = metadata === undefined ? undefined : packMetadata(metadata);
    this.policy = resolvePolicy(attempts);
    this.budget = budget;
    this.#attempts = attempts;
    this.inputValidator = validatorOf(contract.input);
    this.outputValidator = validatorOf(contract.output);
  }

  /** The served call that a call with these options belongs to. Undefined without one. */
  callAround(options: { readonly inherit?: boolean | undefined } | undefined): IncomingCall | undefined {
    return (options?.inherit ?? this.inherit) ? currentCall() : undefined;
  }

  termsOf({ priority, whenFull }: Pick<CallOptions, "priority" | "whenFull">): RequestTerms {
    if (priority === undefined && whenFull === undefined) return this;
    const { isOneWay, isBuiltin, key } = this;
    const failsWhenFull = whenFull === undefined ? this.failsWhenFull : whenFull === "fail";
    return { priority: priority ?? this.priority, failsWhenFull, isOneWay, isBuiltin, key };
  }

  policyOf(call: AttemptOptions): RetryPolicy | undefined {
    if (call.retry === undefined && call.attemptTimeoutMs === undefined) return this.policy;
    return resolvePolicy(this.#attempts, call);
  }

  /** The metadata of a call with these options, made for `around`. Undefined without metadata. */
  metadataFor(
    options: CallOptions | undefined,
    around: IncomingCall | undefined,
  ): MergedMetadata | undefined {
    const own = options?.metadata;
    const inherits = passesOn(around);
    if (own === undefined && !inherits && this.#metadata === undefined) return undefined;
    const metadata = new MergedMetadata(this.#metadata);
    if (own !== undefined) replaceEntries(metadata, own);
    if (around !== undefined) inherit(metadata, around);
    return metadata;
  }

  /**
   * The block of a call with these options, made for `around`. Undefined without metadata.
   *
   * @throws RpcError `invalid_argument` beyond a limit.
   */
  blockFor(options: CallOptions | undefined, around: IncomingCall | undefined): Uint8Array | undefined {
    const own = options?.metadata;
    if (own instanceof MergedMetadata) return packMetadata(own);
    if (own === undefined && !passesOn(around)) return this.block;
    // Without a merge the checked entries are packed unchanged.
    if (own !== undefined && this.#metadata === undefined && !passesOn(around)) return packMetadata(own);
    const metadata = this.metadataFor(options, around);
    return metadata === undefined ? undefined : packMetadata(metadata);
  }

  /** The method's number at a peer, or -1: see `unservedBy`. Most calls go to the same peer as the call before. */
  numberIn(numbers: MethodNumbers): number {
    if (numbers !== this.#numbers || numbers.edition !== this.#edition) {
      this.#numbers = numbers;
      this.#edition = numbers.edition;
      const number = numbers.of(this.service, this.name);
      const isKnown = number >= 0 && numbers.kindOf(number) === methodKindNumbers[this.contract.kind];
      this.#number = this.isBuiltin ? this.builtinNumber : isKnown ? number : -1;
    }
    return this.#number;
  }

  /** The reason why a peer has no number for the method. */
  unservedBy(numbers: MethodNumbers): string {
    const { source, path, service, name } = this;
    const lack = numbers.lackOf(service, name);
    if (lack !== "") return `${source.name} ${lack}`;
    const theirs = kindNames[numbers.kindOf(numbers.of(service, name))];
    return `${source.name} serves "${path}" as ${theirs}, this contract has it as ${kindNames[methodKindNumbers[this.contract.kind]]}`;
  }
}

/**
 * Counts a user's call that has ended, at `endedMs` if the clock has been read already. Returns the time it took, if
 * there is a listener for it.
 */
export function recordEnd(
  { metrics, source: { engine } }: ClientMethod,
  startedMs: number,
  code: RpcCode | "ok",
  endedMs?: number,
): number | undefined {
  if (code === "ok") engine.counters.callsSucceeded++;
  else engine.counters.callsFailed++;
  const number = code === "ok" ? okNumber : codeToNumber(code);
  const tookMs = engine.metrics.timed ? (endedMs ?? engine.clock.now()) - startedMs : undefined;
  metrics.record(number, tookMs);
  if (tookMs === undefined || (code === "ok" && tookMs < engine.metrics.toldFromMs)) return undefined;
  return engine.metrics.tells(tookMs, code) ? tookMs : undefined;
}
