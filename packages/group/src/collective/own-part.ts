import type { ErrorDeclarations } from "cinnabar/standard";
import type { BulkCopy } from "./bulk-copy.ts";
import type { Envelope } from "./envelope.ts";
import { DeclaredFailure, failureOfHandler, type Parsed, parse, reportHandlerError } from "./failure.ts";
import type { CollectiveCall, CollectiveHook, ServedCollective } from "./handlers.ts";
import { isLater, type MaybePromise } from "./handlers.ts";
import type { Failure } from "./result.ts";

/** Whether this member may run: with the input as its schema makes it, or why not. A veto holds for all below, too. */
export type Prepared = Parsed | { readonly veto: Failure };

/** What handlers need of the node that they run at. */
export interface OwnHost {
  /** The name of the group. */
  readonly group: string;
  /** When the node must answer, on `performance.now()`'s clock. */
  readonly answerByMs: number;
  /** Made when it is first needed. */
  readonly handlerSignal: AbortSignal;
  /** Runs what belongs to no single request: the call may arrive again by another way. */
  detached<A extends unknown[], R>(work: (...args: A) => R, ...args: A): R;
}

/**
 * What a member itself executes of a call: its hooks and its handler. Where these and the schemas are synchronous, so is
 * this: most handlers of a collective say what is there, and a promise costs a leaf more than they do.
 */
export class OwnPart {
  readonly #served: ServedCollective;
  readonly #envelope: Envelope;
  readonly #host: OwnHost;

  constructor(served: ServedCollective, envelope: Envelope, host: OwnHost) {
    this.#served = served;
    this.#envelope = envelope;
    this.#host = host;
  }

  /** Parses the input and asks `before`. It neither throws nor rejects. */
  prepare(): MaybePromise<Prepared> {
    const { input, inputs } = this.#envelope;
    const { before, method } = this.#served;
    const parsed = parse(method.collective.input, inputs === undefined ? input : inputs[0], "input");
    return before === undefined ? parsed : this.#ask(before, parsed);
  }

  async #ask(before: CollectiveHook, parsing: MaybePromise<Parsed>): Promise<Prepared> {
    const parsed = await parsing;
    if ("failure" in parsed) return parsed;
    try {
      await this.#call(before, parsed.value);
      return parsed;
    } catch (error) {
      const failure = await this.#failureOf(error);
      return { veto: { ...failure, message: `refused before it was sent on: ${failure.message}` } };
    }
  }

  /** Runs the handler and parses its output. It neither throws nor rejects. */
  execute(input: unknown, copy: BulkCopy | undefined): MaybePromise<Parsed> {
    try {
      const output = this.#call(this.#served.handle, input, copy?.bytes);
      return isLater(output) ? this.#checkLater(output) : this.#check(output);
    } catch (error) {
      return this.#failed(error);
    }
  }

  /** What `after` throws is reported alone: the reply has left. */
  async after(hook: CollectiveHook, input: unknown): Promise<void> {
    try {
      await this.#call(hook, input);
    } catch (error) {
      reportHandlerError(this.#served, error, true);
    }
  }

  async #checkLater(output: PromiseLike<unknown>): Promise<Parsed> {
    try {
      return await this.#check(await output);
    } catch (error) {
      return this.#failed(error);
    }
  }

  #check(output: unknown): MaybePromise<Parsed> {
    const schema = this.#served.method.collective.output;
    if (schema === undefined) return { value: undefined };
    const parsed = parse(schema, output, "output");
    return isLater(parsed) ? parsed.then(asOwn) : asOwn(parsed);
  }

  async #failed(error: unknown): Promise<Parsed> {
    return { failure: await this.#failureOf(error) };
  }

  #failureOf(error: unknown): Promise<Failure> {
    reportHandlerError(this.#served, error);
    return failureOfHandler(error, this.#served.method.collective.errors);
  }

  #call(handler: CollectiveHook, input: unknown, bulk?: Uint8Array): unknown {
    const { errors } = this.#served.method.collective;
    return this.#host.detached(handler, input, new OwnCall(this.#envelope, this.#host, bulk, errors));
  }
}

/** The caller did nothing wrong where an output does not fit. */
const asOwn = (parsed: Parsed): Parsed =>
  "failure" in parsed ? { failure: { ...parsed.failure, code: "internal" } } : parsed;

/** The call as handlers see it. What few of them ask for is made when they ask. */
class OwnCall implements CollectiveCall {
  readonly group: string;
  readonly rank: number;
  readonly root: number | undefined;
  readonly viewVersion: number;
  declare readonly bulk?: Uint8Array;
  readonly #envelope: Envelope;
  readonly #host: OwnHost;
  readonly #errors: ErrorDeclarations;

  constructor(envelope: Envelope, host: OwnHost, bulk: Uint8Array | undefined, errors: ErrorDeclarations) {
    this.group = host.group;
    this.rank = envelope.ranks[0] as number;
    this.root = envelope.rootRank;
    this.viewVersion = envelope.version;
    if (bulk !== undefined) this.bulk = bulk;
    this.#envelope = envelope;
    this.#host = host;
    this.#errors = errors;
  }

  get id(): string {
    return `${this.#envelope.root}-${this.#envelope.call}`;
  }

  get signal(): AbortSignal {
    return this.#host.handlerSignal;
  }

  get timeLeftMs(): number {
    return Math.max(0, this.#host.answerByMs - performance.now());
  }

  /** Bound to the call, so that a handler may take it out. */
  get fail(): (reason: string, data?: unknown) => never {
    return (reason, data) => {
      throw new DeclaredFailure(reason, data, this.#errors[reason]);
    };
  }
}
