import { type Schema, type Validation, validate } from "../contract/schema.ts";
import type { AnyMethod } from "../contract/unary.ts";
import { voidSchema } from "../contract/void-schema.ts";
import type { MethodMetrics } from "../observe/call-metrics.ts";
import type { SessionSource } from "./session-source.ts";

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
  readonly #input: Schema;
  readonly #output: Schema;
  readonly #errors: Readonly<Record<string, Schema>>;

  constructor(
    source: SessionSource,
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
    this.#input = method.input;
    this.#output = method.output;
    this.#errors = method.errors;
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
