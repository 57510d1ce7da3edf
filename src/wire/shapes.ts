/**
 * The keys that maps have come with: messages of one kind have the same ones, in the same order. To compare bytes with those of the last time is quicker than to make strings of them,
 * and an object that is made with all its properties at once quicker than one that gets them one by one.
 */

/** Maps with more keys are rather dictionaries. */
const maxKeys = 32;
const places = 512;
/** A shape that came so often may be built by code made for it; there is a bound on that, because keys come from peers. */
const oftenEnough = 32;
const maxBuilders = 512;
/** After so many maps of a place that were something else, it is theirs. */
const mostMisses = 8;

type Builder = (values: readonly unknown[], base: number) => object;

export class Shape {
  readonly keys: readonly string[];
  /** Each key as it stands in a map, with its header. */
  readonly keyBytes: readonly Uint8Array[];
  /** The object whose values begin at `base`. */
  build: Builder;
  #uses = 0;
  #misses = 0;

  constructor(keys: readonly string[]) {
    this.keys = keys;
    this.keyBytes = keys.map((key) =>
      Buffer.from(`${String.fromCharCode(0xa0 | key.length)}${key}`, "latin1"),
    );
    const slowly = (values: readonly unknown[], base: number) => buildSlowly(keys, values, base);
    this.build = (values, base) => {
      if (++this.#uses === oftenEnough) this.build = builderFor(keys) ?? slowly;
      return slowly(values, base);
    };
  }

  /** A map at its place was another. True when so many have been that the place should be theirs. */
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

/** Where the shape of maps that begin like this one is kept; -1 when they are not worth it. */
export function placeOf(bytes: Uint8Array, at: number, end: number, count: number): number {
  const tag = bytes[at] as number;
  // The last byte of the first key tells more than its first: `id`, `ip`.
  const last = at + (tag & 0x1f);
  if (count > maxKeys || tag < 0xa1 || tag >= 0xc0 || last >= end) return -1;
  return (count * 67 + tag * 31 + (bytes[last] as number)) & (places - 1);
}

/** What maps of that place had last; undefined when that was something else than `count` keys. */
export function shapeAt(place: number, count: number): Shape | undefined {
  const shape = shapes[place];
  return shape?.keys.length === count ? shape : undefined;
}

/** Keeps the shape of an object for the next that is like it, unless another has been seen there lately. */
export function learn(place: number, object: object): void {
  const shape = shapes[place];
  if (shape !== undefined && !shape.missed()) return;
  const keys = Object.keys(object);
  if (keys.every(isName)) shapes[place] = new Shape(keys);
}

/** Not a number, which would not keep its place among the keys of an object, and nothing that means more than a key in the code of a builder. */
function isName(key: string): boolean {
  return /^[A-Za-z_$][\w$]{0,30}$/.test(key) && key !== "__proto__";
}

/** Undefined where code may not be made from strings (`--disallow-code-generation-from-strings`), and when enough has been made. */
function builderFor(keys: readonly string[]): Builder | undefined {
  if (builders >= maxBuilders) return undefined;
  builders++;
  const properties = keys.map((key, i) => `${JSON.stringify(key)}: values[base + ${i}]`);
  try {
    return new Function("values", "base", `return { ${properties.join(", ")} };`) as Builder;
  } catch {
    builders = maxBuilders;
    return undefined;
  }
}
