import { setTimeout as pause } from "node:timers/promises";
import {
  anything,
  boolean,
  checkedBy,
  type FieldsOf,
  fail,
  instance,
  integer,
  milliseconds,
  type Resolved,
  required,
  resolveOptions,
} from "cinnabar/options";
import {
  type CallContext,
  type InferInput,
  type InferOutput,
  RpcError,
  type Schema,
} from "cinnabar/standard";
import type { ActiveImplementation, Collectives } from "../collective/collectives.ts";
import { parse } from "../collective/failure.ts";
import { implementCollectives } from "../collective/handlers.ts";
import { removalOf } from "../collective/members.ts";
import type { MemberSet } from "../group/member-set.ts";
import { Copies } from "./copies.ts";
import { type Opened, Owned } from "./owned.ts";
import { unlessAborted } from "./spreading.ts";
import {
  type Change,
  type Copy,
  longestName,
  type OwnerAnswer,
  type Question,
  VariableService,
} from "./variable-service.ts";

/** What one group's variables are at this process. */
interface Place {
  readonly copies: Copies;
  /** Undefined while this process has not opened them. */
  variables: Variables | undefined;
}

/** What a member serves for variables, and the way to them. Made by `implementVariables`. */
export interface VariableImplementation extends ActiveImplementation {
  /**
   * A value that each member of the group has a copy of. The member with the lowest rank decides about changes. All
   * members serve variables, and open this one with the same schema.
   *
   * @throws TypeError for a bad name or option, a name that is open already, and a group that does not serve them here
   */
  variable<S extends Schema>(
    group: Pick<MemberSet<unknown>, "name">,
    name: string,
    options: VariableOptions<S>,
  ): Variable<S>;
  /** @internal */
  open(collectives: Collectives): Variables;
  /** @internal By the name of the group. */
  readonly places: Map<string, Place>;
}

/**
 * Makes what a member serves for variables. One serves any number of groups.
 *
 * @example
 * const variables = implementVariables();
 * const group = await joinGroup("store", { engine, authority, serve: [variables] });
 * const limits = variables.variable(group, "limits", { schema: Limits, initial: { maxBytes: 1 << 20 } });
 */
export function implementVariables(): VariableImplementation {
  const places = new Map<string, Place>();
  const elsewhere: OwnerAnswer = { state: "elsewhere", version: 0, hasValue: false, value: undefined };
  const implementation = implementCollectives(VariableService, {
    fetch: (question: Question, call: CallContext) =>
      places.get(question.group)?.variables?.onFetch(question, call) ?? elsewhere,
    change: (change: Change, call: CallContext) =>
      places.get(change.group)?.variables?.onChange(change, call) ?? elsewhere,
    put: (put, { group }) => placeOf(places, group).copies.put(put),
    takeOver: (takeOver, { group }) => placeOf(places, group).copies.takeOver(takeOver),
  });
  return Object.freeze({
    ...implementation,
    places,
    variable<S extends Schema>(group: { readonly name: string }, name: string, options: VariableOptions<S>) {
      const variables = places.get(group.name)?.variables;
      if (variables === undefined)
        throw new TypeError(
          `variable "${name}": this process does not serve variables in the group "${group.name}"; pass implementVariables() to joinGroup as serve`,
        );
      return variables.variable(name, options);
    },
    open(collectives: Collectives) {
      const { name } = collectives.members;
      const place = placeOf(places, name);
      place.variables = new Variables(collectives, place.copies, () => places.delete(name));
      return place.variables;
    },
  });
}

function placeOf(places: Map<string, Place>, group: string): Place {
  let place = places.get(group);
  if (place === undefined) {
    place = { copies: new Copies(), variables: undefined };
    places.set(group, place);
  }
  return place;
}

/**
 * Variables of one group at one member: each member has a copy, and the member with the lowest rank decides about
 * changes. Close them before the collectives.
 */
export class Variables implements Disposable {
  readonly #collectives: Collectives;
  readonly #copies: Copies;
  readonly #onClose: () => void;
  readonly #opened = new Map<string, Opened>();
  readonly #owned = new Map<string, Owned>();
  readonly #end = new AbortController();

  /** @internal Made by `open` of the implementation. */
  constructor(collectives: Collectives, copies: Copies, onClose: () => void) {
    this.#collectives = collectives;
    this.#copies = copies;
    this.#onClose = onClose;
  }

  /**
   * The variable with this name. All members open it with the same schema.
   *
   * @throws TypeError for a bad name or option, and for a name that is open already
   */
  variable<S extends Schema>(name: string, options: VariableOptions<S>): Variable<S> {
    const { schema, initial } = resolveOptions("variable", options, variableFields) as VariableOptions<S>;
    if (typeof name !== "string" || name === "" || name.length > longestName)
      throw new TypeError(`variable: a name has 1 to ${longestName} characters`);
    if (this.#opened.has(name)) throw new TypeError(`variable "${name}": it is open already`);
    const isFunction = typeof initial === "function";
    this.#opened.set(name, {
      initial: initial === undefined ? undefined : isFunction ? (initial as () => unknown) : () => initial,
    });
    return new Variable(name, schema, this, this.#copies);
  }

  /** Ends what waits here. This member answers nothing more as an owner. Safe to call twice. */
  close(): void {
    this.#end.abort();
    this.#copies.end();
    this.#onClose();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  /** @internal A question of another member. */
  onFetch({ name }: Question, { signal, timeLeftMs }: CallContext): Promise<OwnerAnswer> {
    return this.#ownedOf(name).fetch(signal, timeLeftMs);
  }

  /** @internal A change by another member. */
  onChange(change: Change, { signal, timeLeftMs }: CallContext): Promise<OwnerAnswer> {
    return this.#ownedOf(change.name).change(change, signal, timeLeftMs);
  }

  /**
   * @internal Asks the owner, and the next one where that is certainly no owner. A question may be asked again in any
   * case; a change that may have been made is not repeated.
   */
  async ask(
    name: string,
    change: Partial<Change> | undefined,
    options: Resolved<typeof callFields>,
  ): Promise<OwnerAnswer> {
    const { timeoutMs, signal: given } = options;
    const untilMs = performance.now() + timeoutMs;
    const { members } = this.#collectives;
    const signals = [this.#end.signal, AbortSignal.timeout(timeoutMs), ...(given ? [given] : [])];
    const signal = AbortSignal.any(signals);
    const whole: Change = {
      ...{ group: members.name, name, hasValue: false, value: undefined, sync: false, ifVersion: undefined },
      ...change,
    };
    for (;;) {
      const why = members.broken ?? removalOf(members);
      if (why !== undefined) throw why;
      const answer = await this.#askOnce(whole, change === undefined, untilMs, signal).catch(
        (error: unknown) => {
          throw signal.aborted ? this.#ended(name, given) : error;
        },
      );
      if (answer !== undefined && answer.state !== "elsewhere") return answer;
      await pause(againMs, undefined, { signal }).catch(() => {
        throw this.#ended(name, given);
      });
    }
  }

  async #askOnce(
    change: Change,
    isQuestion: boolean,
    untilMs: number,
    signal: AbortSignal,
  ): Promise<OwnerAnswer | undefined> {
    const { members } = this.#collectives;
    const [owner] = members.view.members;
    const timeoutMs = Math.max(1, untilMs - performance.now());
    if (owner === undefined) return undefined;
    if (owner.rank === members.self?.rank) {
      const owned = this.#ownedOf(change.name);
      const work = isQuestion ? owned.fetch(signal, timeoutMs) : owned.change(change, signal, timeoutMs);
      return unlessAborted(work, signal);
    }
    const client = members.reach(owner).client(VariableService, { inherit: false });
    const result = isQuestion
      ? await client.fetch.result({ group: members.name, name: change.name }, { timeoutMs, signal })
      : await client.change.result(change, { timeoutMs, signal });
    if (result.ok) return result.value;
    const { error } = result;
    const isGone = error.code === "unavailable" || error.code === "failed_precondition";
    if (isGone && (isQuestion || error.notExecuted === true)) return undefined;
    throw error;
  }

  #ownedOf(name: string): Owned {
    let owned = this.#owned.get(name);
    if (owned === undefined) {
      // Bounds the names, too.
      this.#copies.of(name);
      const opened = () => this.#opened.get(name);
      owned = new Owned(name, this.#collectives, this.#copies, opened, this.#end.signal);
      this.#owned.set(name, owned);
    }
    return owned;
  }

  #ended(name: string, given: AbortSignal | undefined): RpcError {
    const where = `variable "${name}"`;
    if (this.#end.signal.aborted)
      return new RpcError({ code: "unavailable", message: `${where}: the group was closed` });
    if (given?.aborted === true)
      return new RpcError({
        code: "cancelled",
        message: `${where}: the caller gave up`,
        cause: given.reason,
      });
    return new RpcError({ code: "deadline_exceeded", message: `${where}: the owner did not answer in time` });
  }
}

/** Between two questions for the owner, in milliseconds. */
const againMs = 20;
/** The options of `variables.variable`. */
export interface VariableOptions<S extends Schema> {
  /** The schema of the value. Values are checked when they are set and when they are read. */
  readonly schema: S;
  /**
   * The value while no member knows one, or a function that makes it. The owner calls it, also after `invalidate`.
   * Default: the variable has no value until a member sets it.
   */
  readonly initial?: InferInput<S> | (() => InferInput<S> | Promise<InferInput<S>>) | undefined;
}

/** The options of all methods that ask the owner. */
export interface VariableCallOptions {
  /** How long it may take, in milliseconds. Default: 10,000. */
  readonly timeoutMs?: number | undefined;
  /** Gives up. A change may have been made then. */
  readonly signal?: AbortSignal | undefined;
}

/** The options of `variable.get`. */
export interface GetOptions extends VariableCallOptions {
  /** The copy of this member must have this version or a later one; else the owner is asked. Default: any version. */
  readonly minVersion?: number | undefined;
}

/** The options of `variable.set` and `variable.invalidate`. */
export interface SetOptions extends VariableCallOptions {
  /** Fails with a `VersionConflictError` unless this is the newest version. Default: sets it in any case. */
  readonly ifVersion?: number | undefined;
  /** Resolves when all members of the view have it, and not when the owner has. Default: false. */
  readonly sync?: boolean | undefined;
}

const variableFields = {
  schema: required(
    checkedBy((where, name, value) => {
      if (typeof value === "object" || typeof value === "function") return value;
      return fail(TypeError, where, name, "a schema", value);
    }),
  ),
  initial: anything(),
} satisfies FieldsOf<VariableOptions<Schema>>;

const callFields = {
  timeoutMs: milliseconds({ fallback: 10_000 }),
  signal: instance(AbortSignal),
} satisfies FieldsOf<VariableCallOptions>;

const getFields = {
  ...callFields,
  minVersion: integer(0, Number.MAX_SAFE_INTEGER, 0),
} satisfies FieldsOf<GetOptions>;

const setFields = {
  ...callFields,
  ifVersion: integer(0, Number.MAX_SAFE_INTEGER),
  sync: boolean(false),
} satisfies FieldsOf<SetOptions>;

/** A value and its version. */
export interface Versioned<T> {
  readonly version: number;
  readonly value: T;
}

/** The variable has another version than `ifVersion` said. Nothing was changed. Its code is `failed_precondition`. */
export class VersionConflictError extends RpcError {
  /** The newest version. */
  readonly version: number;

  constructor(name: string, expected: number, version: number) {
    const message = `variable "${name}": the newest version is ${version}, and not ${expected}`;
    super({ code: "failed_precondition", message, origin: "remote", notExecuted: true });
    this.version = version;
  }
}

/** One variable at one member; made by `variables.variable`. */
export class Variable<S extends Schema> {
  readonly name: string;
  readonly #schema: S;
  readonly #variables: Variables;
  readonly #copies: Copies;

  /** @internal Made by `variables.variable`. */
  constructor(name: string, schema: S, variables: Variables, copies: Copies) {
    this.name = name;
    this.#schema = schema;
    this.#variables = variables;
    this.#copies = copies;
  }

  /**
   * The value: this member's copy, or the owner's if this member has no copy or one older than `minVersion`.
   *
   * @throws RpcError `not_found` when there is no value; `failed_precondition` when no member knows `minVersion`, or
   * when this process was removed from the group and has no such copy; `unavailable`, `deadline_exceeded` or
   * `cancelled` when the owner does not answer
   */
  async get(options: GetOptions = {}): Promise<Versioned<InferOutput<S>>> {
    const { minVersion, ...terms } = resolveOptions("variable.get", options, getFields);
    const { value: own } = this.#copies.of(this.name).newest;
    if (own.hasValue && own.version >= minVersion) return this.#parsed(own);
    const { version, hasValue, value } = await this.#variables.ask(this.name, undefined, terms);
    this.#copies.keep(this.name, { version, hasValue, value });
    if (version < minVersion)
      throw this.#error("failed_precondition", `the newest version is ${version}, before ${minVersion}`);
    if (!hasValue) throw this.#error("not_found", "it has no value");
    return this.#parsed({ version, hasValue, value });
  }

  /**
   * Sets the value at the owner, which gives it to all members. Resolves to its version when the owner has it, or with
   * `sync` when all members of the view have it.
   *
   * @throws RpcError `invalid_argument` for a value that the schema refuses; `VersionConflictError`; `aborted` when
   * another owner took over while members got it; `failed_precondition` when this process was removed from the group
   * (`notInView(error)` is true then); `unavailable` and `deadline_exceeded` when it is unknown whether the value was
   * set: try again with `ifVersion`.
   */
  async set(value: InferInput<S>, options: SetOptions = {}): Promise<number> {
    const resolved = resolveOptions("variable.set", options, setFields);
    const parsed = await parse(this.#schema, value, "input");
    if ("failure" in parsed) throw this.#error(parsed.failure.code, parsed.failure.message);
    return this.#change({ hasValue: true, value }, resolved);
  }

  /**
   * Makes all copies invalid, by another version without a value. The next `get` has what `initial` makes at the owner.
   *
   * @throws as `set`
   */
  async invalidate(options: SetOptions = {}): Promise<number> {
    const resolved = resolveOptions("variable.invalidate", options, setFields);
    return this.#change({ hasValue: false, value: undefined }, resolved);
  }

  /**
   * The versions that come to this member, from the present copy on. A slow reader gets the newest one. It ends when
   * `signal` aborts or the variables are closed.
   *
   * @example
   * for await (const { version, value } of limits.watch()) apply(value);
   */
  async *watch(signal?: AbortSignal): AsyncGenerator<Versioned<InferOutput<S>>, void, undefined> {
    for await (const copy of this.#copies.of(this.name).newest.read("now", signal))
      if (copy.hasValue) yield await this.#parsed(copy);
  }

  async #change(
    what: Pick<Change, "hasValue" | "value">,
    { ifVersion, sync, ...terms }: Resolved<typeof setFields>,
  ): Promise<number> {
    const answer = await this.#variables.ask(this.name, { ...what, ifVersion, sync }, terms);
    const { state, version } = answer;
    if (state === "conflict") throw new VersionConflictError(this.name, ifVersion as number, version);
    // A process reads what it has set.
    this.#copies.keep(this.name, { version, ...what });
    return version;
  }

  async #parsed({ version, value }: Copy): Promise<Versioned<InferOutput<S>>> {
    const parsed = await parse(this.#schema, value, "output");
    if ("failure" in parsed) throw this.#error(parsed.failure.code, parsed.failure.message);
    return { version, value: parsed.value as InferOutput<S> };
  }

  #error(code: "not_found" | "failed_precondition" | RpcError["code"], message: string): RpcError {
    return new RpcError({ code, message: `variable "${this.name}": ${message}` });
  }
}
