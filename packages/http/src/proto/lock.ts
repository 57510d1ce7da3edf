import { isObject } from "../json/schema.ts";

/** A contract, or a lock file, that has no form in Protobuf. */
export class ProtoError extends Error {
  override readonly name = "ProtoError";
  /** A sentence for each part without a form. The message has one on each line. */
  readonly problems: readonly string[];

  constructor(problems: readonly string[]) {
    super(problems.join("\n"));
    this.problems = problems;
  }
}

/** A field of a message, or a value of an enum, under the number that it keeps. */
export interface LockedName {
  readonly number: number;
  /** The type of a field. A value of an enum has none. */
  readonly type?: string | undefined;
}

/**
 * The numbers of a contract's fields, as plain data. A name that the contract has no longer stays: its number is never
 * given to another one.
 */
export interface ProtoLock {
  /** The name of the service. */
  readonly service: string;
  /** Fields by the JSON names, and values of enums, of each type. */
  readonly types: Readonly<Record<string, Readonly<Record<string, LockedName>>>>;
}

const greatestNumber = 2 ** 29 - 1;
/** Protobuf keeps these for itself. */
const [firstKept, lastKept] = [19_000, 19_999];

const isNumber = (value: unknown): value is number =>
  Number.isInteger(value) &&
  (value as number) >= 1 &&
  (value as number) <= greatestNumber &&
  ((value as number) < firstKept || (value as number) > lastKept);

/** Gives numbers to names: those of the lock, or else the next that no name of the type has had. */
export class Numbers {
  readonly #service: string;
  readonly #types = new Map<string, Map<string, LockedName>>();
  /** The greatest number of each type. */
  readonly #last = new Map<string, number>();
  /** The names of each type that the contract has. */
  readonly #present = new Map<string, Set<string>>();

  /** @throws ProtoError for a lock of another service, and for what is no lock. */
  constructor(service: string, lock: ProtoLock | undefined) {
    this.#service = service;
    if (lock === undefined) return;
    const { service: owner, types } = lock as Readonly<Record<keyof ProtoLock, unknown>>;
    if (owner !== service)
      throw new ProtoError([`the lock file is of the service ${JSON.stringify(owner)}, not of "${service}"`]);
    if (!isObject(types)) throw new ProtoError(["the lock file has no types"]);
    for (const [type, given] of Object.entries(types)) {
      const names = namesOf(type, given);
      this.#types.set(type, names);
      this.#last.set(
        type,
        [...names.values()].reduce((last, { number }) => Math.max(last, number), 0),
      );
    }
  }

  /** The type of a field in the lock; undefined for a new one. */
  typeOf(of: string, name: string): string | undefined {
    return this.#types.get(of)?.get(name)?.type;
  }

  /** The types of all fields that a message has or had. */
  typesOf(of: string): readonly string[] {
    return [...(this.#types.get(of)?.values() ?? [])].map(({ type }) => type ?? "");
  }

  /** The number of a name that the contract has. */
  take(of: string, name: string, type?: string): number {
    const names = this.#types.get(of) ?? new Map<string, LockedName>();
    this.#types.set(of, names);
    this.#present.set(of, (this.#present.get(of) ?? new Set()).add(name));
    const locked = names.get(name) ?? { number: this.#next(of), ...(type === undefined ? {} : { type }) };
    names.set(name, locked);
    return locked.number;
  }

  #next(of: string): number {
    const last = this.#last.get(of) ?? 0;
    const next = last + 1 === firstKept ? lastKept + 1 : last + 1;
    if (next > greatestNumber)
      throw new ProtoError([`the lock file leaves no number for a new name of ${of}`]);
    this.#last.set(of, next);
    return next;
  }

  /** What the lock has of a type, and the contract does not have any more. */
  gone(of: string): readonly (readonly [name: string, number: number])[] {
    const present = this.#present.get(of);
    return [...(this.#types.get(of) ?? [])]
      .filter(([name]) => present?.has(name) !== true)
      .map(([name, { number }]) => [name, number]);
  }

  /** The lock with the names that were new. */
  lock(): ProtoLock {
    const types = [...this.#types].map(([type, names]) => [type, Object.fromEntries(names)]);
    return { service: this.#service, types: Object.fromEntries(types) };
  }
}

function namesOf(of: string, names: unknown): Map<string, LockedName> {
  const entries = isObject(names) ? Object.entries(names) : [];
  const numbers = new Set<unknown>();
  for (const [name, entry] of entries) {
    const { number, type } = isObject(entry) ? entry : {};
    if (!isNumber(number) || (type !== undefined && typeof type !== "string"))
      throw new ProtoError([`the lock file gives ${of} ${JSON.stringify(name)} no number of Protobuf`]);
    if (numbers.has(number))
      throw new ProtoError([
        `the lock file gives the number ${number} to two names of ${of}; give the newer one another number`,
      ]);
    numbers.add(number);
  }
  return new Map(entries as [string, LockedName][]);
}
