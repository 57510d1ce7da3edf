/**
 * Remembers the keys of plain objects: messages of one kind have the same keys in the same order. Code is generated for
 * a frequent shape. It compares and copies the bytes of keys instead of making strings, and reads and sets properties
 * by name. `decode-value.ts` and `encode-value.ts` have a table of shapes each.
 */

/** Objects with more keys are treated as dictionaries. */
const maxKeys = 32;
const places = 512;
/** How often a shape must come before code is generated for it. */
const firstOftenEnough = 32;
/**
 * Each time this many functions were made, the required frequency doubles. Keys come from peers, who could otherwise
 * make this side generate code without end. Peers cannot exhaust the functions either: a shape that is frequent enough
 * always gets one.
 */
const codesPerDoubling = 512;
/** After this many other objects in a row at a place, the place goes to them. */
const mostMisses = 8;

/** `--disallow-code-generation-from-strings`. */
let isForbidden = false;

/** The keys of plain objects, in their order. `Code` is the code that is generated for them. */
export class Shape<Code> {
  readonly keys: readonly string[];
  /** Undefined while the shape has not come often enough, and where code must not be generated. */
  code: Code | undefined = undefined;
  /** A value of the shape's user that lives as long as the shape. */
  kept: unknown;
  /** Other objects that came at its place since its last object. */
  misses = 0;
  uses = 0;
  #keyBytes: readonly Uint8Array[] | undefined;

  constructor(keys: readonly string[]) {
    this.keys = keys;
  }

  /** The encoded keys, with their headers. */
  get keyBytes(): readonly Uint8Array[] {
    this.#keyBytes ??= this.keys.map((key) =>
      Buffer.from(`${String.fromCharCode(0xa0 | key.length)}${key}`, "latin1"),
    );
    return this.#keyBytes;
  }
}

/** The recent shapes. Each has a place, which depends on its keys; other shapes may have the same place. */
export class ShapeTable<Code> {
  readonly #generate: (shape: Shape<Code>) => Code;
  /** The shapes by place. The shape at an object's place may have other keys, and another number of keys. */
  readonly at: (Shape<Code> | undefined)[] = new Array(places).fill(undefined);
  #codes = 0;
  #oftenEnough = firstOftenEnough;

  /** `generate` makes code from strings. */
  constructor(generate: (shape: Shape<Code>) => Code) {
    this.#generate = generate;
  }

  /**
   * An object came that does not have the shape at its place. Returns the object's own shape if it gets the place from
   * now on: not while another shape came there lately.
   */
  learn(place: number, keys: readonly string[]): Shape<Code> | undefined {
    const shape = this.at[place];
    if (shape !== undefined && ++shape.misses < mostMisses) return undefined;
    if (!keys.every(isName)) return undefined;
    const learned = new Shape<Code>(keys);
    this.at[place] = learned;
    return learned;
  }

  /** An object of a shape without code came. */
  count(shape: Shape<Code>): void {
    shape.misses = 0;
    if (++shape.uses < this.#oftenEnough || isForbidden) return;
    if (++this.#codes % codesPerDoubling === 0) this.#oftenEnough *= 2;
    try {
      shape.code = this.#generate(shape);
    } catch (error) {
      // A value may be so deep that the stack has no room for the compiler. That does not apply to the next value.
      isForbidden = !(error instanceof RangeError);
    }
  }
}

/** The place of a map that begins with these bytes; -1 if its shape is not remembered. */
export function placeOfBytes(bytes: Uint8Array, at: number, end: number, count: number): number {
  const tag = bytes[at] as number;
  // The last byte of the first key differs more often than its first: `id`, `ip`.
  const last = at + (tag & 0x1f);
  if (count > maxKeys || tag < 0xa1 || tag >= 0xc0 || last >= end) return -1;
  return (count * 67 + tag * 31 + (bytes[last] as number)) & (places - 1);
}

/** The place of an object with these keys; -1 if its shape is not remembered. */
export function placeOfKeys(keys: readonly string[]): number {
  const { length } = keys;
  if (length === 0 || length > maxKeys) return -1;
  const first = keys[0] as string;
  const last = keys[length - 1] as string;
  const ends = 31 * first.charCodeAt(first.length - 1) + 17 * last.charCodeAt(last.length - 1);
  return (length * 67 + ends + first.length * 7 + last.length * 13) & (places - 1);
}

/**
 * Keys that may be in generated code. No numbers: they would change the order of an object's keys. A `toJSON` may be a
 * method, which the encoder calls.
 */
function isName(key: string): boolean {
  return /^[A-Za-z_$][\w$]{0,30}$/.test(key) && key !== "__proto__" && key !== "toJSON";
}
