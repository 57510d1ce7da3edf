/**
 * The one checker of option objects. A table of fields describes the options of a function: the kind of each value, its
 * range, its unit and its default. `checkOptions` refuses values that do not fit; `resolveOptions` also fills in
 * defaults. Every message has one form: where, field, the required value, the given value.
 */

/** One option: the check of its value, and its default. `R` is the resolved value. */
export interface Field<R> {
  /**
   * Returns the resolved value. `name` is the path of the field, such as `limits.maxBodyBytes`.
   *
   * @throws TypeError for a value of the wrong kind, RangeError for one out of range. Both name `where` and `name`.
   */
  resolve(where: string, name: string, value: unknown): R;
  /** The resolved value where the field is left out or undefined. */
  readonly fallback?: R;
  /** The field must be given. */
  readonly isRequired?: boolean;
}

/** A table of fields. */
export type Fields = Readonly<Record<string, Field<unknown>>>;

/** A table with a field for each option of `O`, and no others. Use it with `satisfies`. */
export type FieldsOf<O extends object> = { readonly [K in keyof Required<O>]: Field<unknown> };

/** The resolved options of a table: all fields, perhaps undefined for those without a default. */
export type Resolved<F extends Fields> = {
  readonly [K in keyof F]: F[K] extends { readonly fallback: infer R }
    ? R
    : F[K] extends { readonly isRequired: true; resolve(...args: never): infer R }
      ? R
      : F[K] extends Field<infer R>
        ? R | undefined
        : never;
};

/** Whether a value is an object with this brand. Brands are global symbols: copies of the package share them. */
export function isBranded(value: unknown, brand: symbol): boolean {
  return typeof value === "object" && value !== null && (value as Record<symbol, unknown>)[brand] === true;
}

/** The longest time of a timer, and of a frame: 24.8 days. */
export const maxTimeoutMs = 2_147_483_647;

/** Options with all fields present, as `resolveOptions` returns them. */
export type Complete<O> = { readonly [K in keyof O]-?: Exclude<O[K], undefined> };

/**
 * Checks options without making an object, for calls that are made often.
 *
 * @throws TypeError for a value that is not an object, an unknown option, or a value of the wrong kind. RangeError for
 * a value out of range. Each names the field and the required value.
 */
export function checkOptions(where: string, options: object, fields: Fields): void {
  check(where, "", options, fields);
}

/**
 * Checks options and fills in the defaults.
 *
 * @throws as `checkOptions`, and TypeError for a required option that is missing.
 */
export function resolveOptions<F extends Fields>(
  where: string,
  options: object | undefined,
  fields: F,
): Resolved<F> {
  return resolve(where, "", options === undefined ? {} : options, fields);
}

/** As `resolveOptions`, for options inside options: `path` is the name of the field that contains them. */
export function resolveNested<F extends Fields>(
  where: string,
  path: string,
  options: unknown,
  fields: F,
): Resolved<F> {
  return resolve(where, path, options, fields);
}

/** An integer from `low` to `high`. */
export function integer(low: number, high: number): Field<number>;
export function integer(low: number, high: number, fallback: number): Defaulted<number>;
export function integer(low: number, high: number, fallback?: number): Field<number> {
  return defaulted(fallback, (where, name, value) => {
    if (!Number.isInteger(value)) fail(TypeError, where, name, `an integer from ${low} to ${high}`, value);
    if ((value as number) < low || (value as number) > high)
      fail(RangeError, where, name, `an integer from ${low} to ${high}`, value);
    return value as number;
  });
}

/** A number from `low` to `high`, fractions included. */
export function number(low: number, high: number): Field<number>;
export function number(low: number, high: number, fallback: number): Defaulted<number>;
export function number(low: number, high: number, fallback?: number): Field<number> {
  return defaulted(fallback, (where, name, value) => {
    if (typeof value !== "number" || Number.isNaN(value))
      fail(TypeError, where, name, `a number from ${low} to ${high}`, value);
    if (value < low || value > high) fail(RangeError, where, name, `a number from ${low} to ${high}`, value);
    return value;
  });
}

/** A time that a timer can hold, in milliseconds: above 0, or at least `low`, and at most `maxTimeoutMs`. */
export function milliseconds(bounds?: { readonly low?: number }): Field<number>;
export function milliseconds(bounds: { readonly low?: number; readonly fallback: number }): Defaulted<number>;
export function milliseconds({
  low,
  fallback,
}: {
  readonly low?: number;
  readonly fallback?: number;
} = {}): Field<number> {
  const range =
    low === undefined
      ? `a number of milliseconds above 0, at most ${maxTimeoutMs}`
      : `a number of milliseconds from ${low} to ${maxTimeoutMs}`;
  return defaulted(fallback, (where, name, value) => {
    if (typeof value !== "number" || Number.isNaN(value)) fail(TypeError, where, name, range, value);
    if (value > maxTimeoutMs || (low === undefined ? value <= 0 : value < low))
      fail(RangeError, where, name, range, value);
    return value;
  });
}

/** True or false. */
export function boolean(): Field<boolean>;
export function boolean(fallback: boolean): Defaulted<boolean>;
export function boolean(fallback?: boolean): Field<boolean> {
  return defaulted(fallback, (where, name, value) => {
    if (typeof value !== "boolean") fail(TypeError, where, name, "true or false", value);
    return value;
  });
}

/** One of some strings. */
export function oneOf<const T extends string>(choices: readonly T[]): Field<T>;
export function oneOf<const T extends string>(choices: readonly T[], fallback: T): Defaulted<T>;
export function oneOf<T extends string>(choices: readonly T[], fallback?: T): Field<T> {
  return defaulted(fallback, (where, name, value) => {
    if (!choices.includes(value as T))
      fail(TypeError, where, name, choices.map((choice) => JSON.stringify(choice)).join(" or "), value);
    return value as T;
  });
}

/** A string of `low` to `high` characters. */
export function text(low: number, high: number): Field<string> {
  return {
    resolve(where, name, value) {
      if (typeof value !== "string" || value.length < low || value.length > high)
        fail(TypeError, where, name, `a string of ${low} to ${high} characters`, value);
      return value;
    },
  };
}

/** A function. `T` is its type, which is not checked. */
// biome-ignore lint/suspicious/noExplicitAny: any function fits
export function callback<T extends (...args: any[]) => unknown>(): Field<T>;
// biome-ignore lint/suspicious/noExplicitAny: any function fits
export function callback<T extends (...args: any[]) => unknown>(fallback: T): Defaulted<T>;
// biome-ignore lint/suspicious/noExplicitAny: any function fits
export function callback<T extends (...args: any[]) => unknown>(fallback?: T): Field<T> {
  return defaulted(fallback, (where, name, value) => {
    if (typeof value !== "function") fail(TypeError, where, name, "a function", value);
    return value as T;
  });
}

/** An object that is an instance of a class. */
export function instance<T>(type: abstract new (...args: never) => T): Field<T> {
  return {
    resolve(where, name, value) {
      if (!(value instanceof type)) fail(TypeError, where, name, `an instance of ${type.name}`, value);
      return value;
    },
  };
}

/** An array of `low` to `high` items, each of which `item` checks. Its name is that of the array and its index. */
export function list<R>(item: Field<R>, low = 0, high = Number.POSITIVE_INFINITY): Field<readonly R[]> {
  const isOpen = high === Number.POSITIVE_INFINITY;
  const count = isOpen ? `at least ${low}` : `${low} to ${high}`;
  const items = isOpen && low === 1 ? "item" : "items";
  const expected = isOpen && low === 0 ? "an array" : `an array of ${count} ${items}`;
  return {
    resolve(where, name, value) {
      if (!Array.isArray(value)) return fail(TypeError, where, name, expected, value);
      if (value.length < low || value.length > high)
        throw new RangeError(`${where}: ${name} must be ${expected}, it has ${value.length}`);
      return value.map((one, index) => item.resolve(where, `${name}[${index}]`, one));
    },
  };
}

/** Options inside options. Left out, they resolve to the defaults of their fields. */
export function group<F extends Fields>(fields: F): Defaulted<Resolved<F>> {
  return {
    resolve: (where, name, value) => resolve(where, name, value, fields),
    get fallback() {
      return resolve("", "", {}, fields);
    },
  };
}

/** A field that `false` turns off. */
export function orFalse<R>({ resolve }: Field<R>): Field<R | false> {
  return { resolve: (where, name, value) => (value === false ? false : resolve(where, name, value)) };
}

/** A field that a function of its subject checks: it returns the resolved value or throws. */
export function checkedBy<R>(resolve: (where: string, name: string, value: unknown) => R): Field<R>;
export function checkedBy<R>(
  resolve: (where: string, name: string, value: unknown) => R,
  fallback: R,
): Defaulted<R>;
export function checkedBy<R>(
  resolve: (where: string, name: string, value: unknown) => R,
  fallback?: R,
): Field<R> {
  return defaulted(fallback, resolve);
}

/** A field with a default. A function completes its checked value, and may throw, too. */
export function completed<A, R>(
  field: Defaulted<A>,
  complete: (value: A, where: string, name: string) => R,
): Defaulted<R> {
  return {
    resolve: (where, name, value) => complete(field.resolve(where, name, value), where, name),
    get fallback() {
      return complete(field.fallback, "", "");
    },
  };
}

/** A field of any value, which its reader checks. */
export function anything<T = unknown>(): Field<T> {
  return { resolve: (_where, _name, value) => value as T };
}

/** The same field, which must be given. */
export function required<R>(field: Field<R>): Field<R> & { readonly isRequired: true } {
  return { resolve: field.resolve.bind(field), isRequired: true };
}

/** A field with a default. */
export type Defaulted<R> = Field<R> & { readonly fallback: R };

/** A copy of the given options, without those that are undefined. */
export function given<O extends object>(options: O): { [K in keyof O]?: Exclude<O[K], undefined> } {
  const entries = Object.entries(options).filter(([, value]) => value !== undefined);
  return Object.fromEntries(entries) as { [K in keyof O]?: Exclude<O[K], undefined> };
}

/**
 * Throws with the one form of all messages of options.
 *
 * @throws always: `kind`, such as "connect: window.maxInFlight must be an integer from 1 to 1048576, it is 0".
 */
export function fail(
  kind: typeof TypeError | typeof RangeError,
  where: string,
  name: string,
  expected: string,
  value: unknown,
): never {
  throw new kind(`${where}: ${name} must be ${expected}, it is ${shown(value)}`);
}

/** A value for an error message: a string in quotes, so that "5" does not look like 5. At most 80 characters. */
export function shown(value: unknown): string {
  if (typeof value === "function") return "a function";
  let whole: string;
  try {
    whole = typeof value === "string" ? JSON.stringify(value) : String(value);
  } catch {
    // An object without a prototype, or one with a conversion that throws.
    whole = "an object";
  }
  return whole.length <= 80 ? whole : `${whole.slice(0, 79)}…`;
}

function defaulted<R>(fallback: R | undefined, resolve: Field<R>["resolve"]): Field<R> {
  return fallback === undefined ? { resolve } : { resolve, fallback };
}

function check(where: string, path: string, options: unknown, fields: Fields): void {
  assertObject(where, path, options);
  for (const name of Object.keys(options)) {
    const value = (options as Record<string, unknown>)[name];
    const field = fieldOf(where, path, name, fields);
    if (value !== undefined) field.resolve(where, below(path, name), value);
  }
}

function resolve<F extends Fields>(where: string, path: string, options: unknown, fields: F): Resolved<F> {
  assertObject(where, path, options);
  for (const name of Object.keys(options)) fieldOf(where, path, name, fields);
  const resolved: Record<string, unknown> = {};
  for (const name of Object.keys(fields)) {
    const field = fields[name] as Field<unknown>;
    const value = (options as Record<string, unknown>)[name];
    if (value !== undefined) resolved[name] = field.resolve(where, below(path, name), value);
    else if (field.isRequired === true) throw new TypeError(`${where}: ${below(path, name)} is missing`);
    else resolved[name] = field.fallback;
  }
  return resolved as Resolved<F>;
}

function fieldOf(where: string, path: string, name: string, fields: Fields): Field<unknown> {
  if (Object.hasOwn(fields, name)) return fields[name] as Field<unknown>;
  const known = Object.keys(fields);
  const meant = nearest(name, known);
  const hint = meant === undefined ? "" : `did you mean "${below(path, meant)}"? `;
  throw new TypeError(
    `${where}: unknown option "${below(path, name)}"; ${hint}known are ${known.join(", ")}`,
  );
}

function assertObject(where: string, path: string, options: unknown): asserts options is object {
  if (typeof options === "object" && options !== null && !Array.isArray(options)) return;
  throw new TypeError(
    `${where}: ${path === "" ? "options" : path} must be an object, it is ${shown(options)}`,
  );
}

const below = (path: string, name: string): string => (path === "" ? name : `${path}.${name}`);

/** The known name that a mistyped one most likely means: at most a third of its letters differ. */
export function nearest(name: string, known: readonly string[]): string | undefined {
  // Typed names are short; a long one is no typing error.
  if (name.length > 64) return undefined;
  let best: string | undefined;
  let bestDistance = Math.max(1, Math.floor(name.length / 3)) + 1;
  for (const candidate of known) {
    const distance = editDistance(name.toLowerCase(), candidate.toLowerCase());
    if (distance < bestDistance) [best, bestDistance] = [candidate, distance];
  }
  return best;
}

/** Letters inserted, deleted, replaced, or swapped with their neighbour (optimal string alignment). */
function editDistance(a: string, b: string): number {
  const rows = [Array.from({ length: b.length + 1 }, (_, index) => index)];
  const at = (i: number, j: number): number => rows[i]?.[j] as number;
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    rows.push(row);
    for (let j = 1; j <= b.length; j++) {
      const replaced = at(i - 1, j - 1) + (a[i - 1] === b[j - 1] ? 0 : 1);
      row[j] = Math.min(at(i - 1, j) + 1, at(i, j - 1) + 1, replaced);
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1])
        row[j] = Math.min(row[j] as number, at(i - 2, j - 2) + 1);
    }
  }
  return at(a.length, b.length);
}
