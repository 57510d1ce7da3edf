/**
 * Remembers the keys of decoded maps: messages of one kind have the same keys in the same order. Comparing bytes with
 * those of the last map is faster than making strings. Building an object with all its properties is faster than
 * setting them one by one.
 */

/** Maps with more keys are treated as dictionaries. */
const maxKeys = 32;
const places = 512;
/**
 * A shape that was seen this often gets a generated builder. After every 512 builders it must have been seen twice as
 * often: keys come from peers, who could make this side generate code without end. Peers cannot use the builders up
 * either: a shape that is frequent enough always gets one.
 */
let oftenEnough = 32;
const buildersPerDoubling = 512;
/** After this many other maps at a place, the place is given to them. */
const mostMisses = 8;

type Builder = (values: readonly unknown[], base: number) => object;

export class Shape {
  readonly keys: readonly string[];
  /** The encoded keys, with their headers. */
  readonly keyBytes: readonly Uint8Array[];
  /** Builds the object whose values begin at `base`. */
  build: Builder;
  /**
   * An object of the current builder with objects in all properties. V8 keeps a box of 16 bytes for each integer in a
   * property that has had doubles and integers only. It keeps none in one that has had an object. The object is kept
   * because V8 forgets this of properties that no object has any more.
   */
  unboxed: object;
  #uses = 0;
  #misses = 0;

  constructor(keys: readonly string[]) {
    this.keys = keys;
    this.keyBytes = keys.map((key) =>
      Buffer.from(`${String.fromCharCode(0xa0 | key.length)}${key}`, "latin1"),
    );
    const slowly = (values: readonly unknown[], base: number) => buildSlowly(keys, values, base);
    this.build = (values, base) => {
      if (++this.#uses >= oftenEnough) this.#take(builderFor(keys) ?? slowly);
      return slowly(values, base);
    };
    this.unboxed = slowly(this.#objects, 0);
  }

  #take(build: Builder): void {
    this.build = build;
    this.unboxed = build(this.#objects, 0);
  }

  get #objects(): readonly object[] {
    return new Array(this.keys.length).fill(this.keys);
  }

  /** Another map came at this place. True if the place should be given to it. */
  missed(): boolean {
    return ++this.#misses >= mostMisses;
  }
}

function buildSlowly(keys: readonly string[], values: readonly unknown[], base: number): object {
  const object: Record<string, unknown> = {};
  for (let i = 0; i < keys.length; i++) object[keys[i] as string] = values[base + i];
  return object;
}

const shapes: (Shape | undefined)[] = new Array(places).fill(undefined);
let builders = 0;
let isForbidden = false;

/** The place of the shape of maps that begin like this one; -1 if they are not remembered. */
export function placeOf(bytes: Uint8Array, at: number, end: number, count: number): number {
  const tag = bytes[at] as number;
  // The last byte of the first key differs more often than its first: `id`, `ip`.
  const last = at + (tag & 0x1f);
  if (count > maxKeys || tag < 0xa1 || tag >= 0xc0 || last >= end) return -1;
  return (count * 67 + tag * 31 + (bytes[last] as number)) & (places - 1);
}

/** The last shape at a place; undefined if it does not have `count` keys. */
export function shapeAt(place: number, count: number): Shape | undefined {
  const shape = shapes[place];
  return shape?.keys.length === count ? shape : undefined;
}

/** Remembers the shape of an object, unless another shape was seen at its place lately. */
export function learn(place: number, object: object): void {
  const shape = shapes[place];
  if (shape !== undefined && !shape.missed()) return;
  const keys = Object.keys(object);
  if (keys.every(isName)) shapes[place] = new Shape(keys);
}

/** Keys that a builder may have in its code. No numbers: they would change the order of an object's keys. */
function isName(key: string): boolean {
  return /^[A-Za-z_$][\w$]{0,30}$/.test(key) && key !== "__proto__";
}

/** Undefined if code generation is forbidden (`--disallow-code-generation-from-strings`). */
function builderFor(keys: readonly string[]): Builder | undefined {
  if (isForbidden) return undefined;
  if (++builders % buildersPerDoubling === 0) oftenEnough *= 2;
  const properties = keys.map((key, i) => `${JSON.stringify(key)}: values[base + ${i}]`);
  try {
    return new Function("values", "base", `return { ${properties.join(", ")} };`) as Builder;
  } catch {
    isForbidden = true;
    return undefined;
  }
}
