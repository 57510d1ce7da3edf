import { type Schema, type Validation, validate } from "../contract/schema.ts";
import type { AnyMethod } from "../contract/unary.ts";
import { voidSchema } from "../contract/void-schema.ts";
import { codeToNumber, okNumber, type RpcCode } from "../errors/code.ts";
import type { Priority } from "../flow/priority.ts";
import type { MethodMetrics } from "../observe/call-metrics.ts";
import type { MethodNumbers } from "../session/method-numbers.ts";
import type { WhenFull } from "./call-options.ts";
import type { RetryBudget } from "./retry-budget.ts";
import { type AttemptOptions, type RetryPolicy, resolvePolicy } from "./retry-policy.ts";
import type { SessionSource } from "./session-source.ts";

/** What all methods of a client share. */
export interface ClientTerms {
  readonly source: SessionSource;
  /** What the client says of attempts. */
  readonly attempts: AttemptOptions;
  readonly budget: RetryBudget;
  readonly inherit: boolean;
  readonly whenFull: WhenFull;
  /** Undefined: each method's own. */
  readonly priority: Priority | undefined;
}

/** One method of one client: everything its calls share. */
export class ClientMethod {
  readonly source: SessionSource;
  readonly service: string;
  readonly name: string;
  /** `service/method`, for errors. */
  readonly path: string;
  readonly timeoutMs: number;
  readonly metrics: MethodMetrics;
  /** True when the method takes nothing, so that nothing is checked or encoded. */
  readonly takesNothing: boolean;
  readonly idempotent: boolean;
  readonly replay: boolean;
  /** Whether calls belong to the call being served. */
  readonly inherit: boolean;
  readonly whenFull: WhenFull;
  readonly priority: Priority;
  /** Of calls that say nothing of attempts themselves. Undefined: they make one. */
  readonly policy: RetryPolicy | undefined;
  readonly budget: RetryBudget;
  /** Where its number was looked up last. */
  #numbers: MethodNumbers | undefined;
  #edition = 0;
  #number = -1;
  readonly #attempts: AttemptOptions;
  readonly #input: Schema;
  readonly #output: Schema;
  readonly #errors: Readonly<Record<string, Schema>>;

  constructor(
    { source, attempts, budget, inherit, whenFull, priority }: ClientTerms,
    service: string,
    name: string,
    path: string,
    method: AnyMethod,
    timeoutMs: number,
  ) {
    this.source = source;
    this.service = service;
    this.name = name;
    this.path = path;
    this.timeoutMs = timeoutMs;
    this.metrics = source.host.metrics.of(path, "out");
    this.takesNothing = method.input === voidSchema;
    this.idempotent = method.idempotent;
    this.replay = method.replay;
    this.inherit = inherit;
    this.whenFull = whenFull;
    this.priority = priority ?? method.priority;
    this.policy = resolvePolicy(attempts);
    this.budget = budget;
    this.#attempts = attempts;
    this.#input = method.input;
    this.#output = method.output;
    this.#errors = method.errors;
  }

  /** Of a call that says this. */
  policyOf(call: AttemptOptions): RetryPolicy | undefined {
    if (call.retry === undefined && call.hedge === undefined && call.attemptTimeoutMs === undefined)
      return this.policy;
    return resolvePolicy(this.#attempts, call);
  }

  /** Its number at a peer, or -1. Most calls go to the peer of the call before. */
  numberIn(numbers: MethodNumbers): number {
    if (numbers !== this.#numbers || numbers.edition !== this.#edition) {
      this.#numbers = numbers;
      this.#edition = numbers.edition;
      this.#number = numbers.of(this.service, this.name);
    }
    return this.#number;
  }

  checkInput(value: unknown): Validation<unknown> | Promise<Validation<unknown>> {
    return validate(this.#input, value);
  }

  checkOutput(value: unknown): Validation<unknown> | Promise<Validation<unknown>> {
    return validate(this.#output, value);
  }

  /** Whether the contract declares errors of this reason. */
  declares(reason: string): boolean {
    return this.#errors[reason] !== undefined;
  }

  /** The verdict on a declared error's data. */
  checkErrorData(reason: string, data: unknown): Validation<unknown> | Promise<Validation<unknown>> {
    return validate(this.#errors[reason] as Schema, data);
  }
}

/** Counts a user's call that has ended. How long it took, where that is to be told of. */
export function recordEnd(
  { metrics, source: { host } }: ClientMethod,
  startedMs: number,
  code: RpcCode | "ok",
): number | undefined {
  metrics.count(code === "ok" ? okNumber : codeToNumber(code));
  if (!host.metrics.timed) return undefined;
  const tookMs = host.clock.now() - startedMs;
  metrics.latencyMs.record(tookMs);
  return tookMs >= host.metrics.slowCallMs ? tookMs : undefined;
}
