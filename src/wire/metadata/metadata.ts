import { RpcError } from "../../base/errors/rpc-error.ts";
import { entryFault, type MetadataKey, type MetadataValue, type MetadataValues } from "./entry.ts";
import { addValue, findMetadata, hasBytes, readMetadata, writeMetadata } from "./metadata-block.ts";
import { rememberBlock, repeatedBlock } from "./repeated-object.ts";

/**
 * Metadata from a user: an object, or an iterable of names with values, such as `Metadata`, a `Map` and fetch's
 * `Headers`.
 */
export type MetadataInit =
  | Readonly<Record<string, MetadataValues>>
  | (Iterable<[name: string, value: MetadataValues]> & { has(name: string): boolean });

type NamedValues = Extract<MetadataInit, { has(name: string): boolean }>;

/** Whether `init` has its entries as an iterable, and can be iterated again. */
function hasNamedValues(init: object): init is NamedValues {
  return Symbol.iterator in init && "has" in init && typeof init.has === "function";
}

/** @throws TypeError for another iterable, which may be readable only once. */
export function entriesOf(init: MetadataInit): Iterable<[name: string, value: MetadataValues]> {
  if (hasNamedValues(init)) return init;
  if (Symbol.iterator in init)
    throw new TypeError("metadata: must be an object, a Metadata, a Map or Headers");
  return Object.entries(init);
}

/** Metadata of a peer, from a copy of its block that has been checked. */
export let receivedMetadata: (block: Buffer | undefined) => Metadata;
/** The metadata has left: a change would have no effect, so it throws from now on. */
export let lockSent: (metadata: Metadata) => void;
let blockOf: (metadata: Metadata) => Uint8Array | undefined;

/**
 * Named values that travel with a call beside its input: a token, a tenant, a trace. Names are lower-case ASCII as in
 * HTTP, at most 128 characters. Values are strings without control characters, or bytes. A name may have several
 * values, in order. A call carries at most 64 values and 8,192 bytes, in each direction.
 *
 * A caller sends `metadata` with its request. The handler sends `headers` before its first item or its answer, and
 * `trailers` with the answer or the error. Received metadata, and headers that have been sent, cannot be changed; a copy
 * can: `new Metadata(call.metadata)`.
 *
 * @example
 * const metadata = new Metadata({ "x-tenant": "acme" });
 * metadata.set("x-request", crypto.randomUUID());
 * metadata.append("x-via", "gateway");
 * await files.stat({ path }, { metadata });
 */
export class Metadata implements Iterable<[name: string, value: MetadataValue]> {
  /** Several values of a name are an array of two or more, which this object owns. */
  #entries: Map<string, MetadataValue | MetadataValue[]> | undefined;
  /** The block as it arrived; decoded on demand. */
  #received: Buffer | undefined;
  /** Why it cannot be changed. */
  #locked: "received" | "sent" | undefined;
  /** The last packed block. Kept until a change. */
  #packed: Uint8Array | undefined;

  /** @throws TypeError for a malformed name or value, naming it. */
  constructor(init?: MetadataInit) {
    if (init instanceof Metadata) this.#entries = init.#copy();
    else if (init !== undefined) for (const [name, value] of entriesOf(init)) this.append(name, value);
  }

  /**
   * The first value, if it is a text, or that of a typed key; undefined without a value, or for bytes under a plain
   * name.
   */
  get(name: string): string | undefined;
  get<T>(key: MetadataKey<T>): T | undefined;
  get<T>(key: string | MetadataKey<T>): string | T | undefined {
    if (typeof key === "string") {
      const value = this.#find(key);
      return typeof value === "string" ? value : undefined;
    }
    const value = this.#find(key.name);
    return value === undefined ? undefined : key.read(value);
  }

  /** All values of a name in their order, or those of a typed key; empty without a value. */
  getAll(name: string): MetadataValue[];
  getAll<T>(key: MetadataKey<T>): T[];
  getAll<T>(key: string | MetadataKey<T>): (MetadataValue | T)[] {
    const found = this.#read().get(typeof key === "string" ? key : key.name);
    const values = found === undefined ? [] : Array.isArray(found) ? [...found] : [found];
    return typeof key === "string" ? values : values.map((value) => key.read(value));
  }

  /** The first value, if it is of bytes; undefined without a value, or for a text. */
  getBytes(name: string): Uint8Array | undefined {
    const value = this.#find(name);
    return typeof value === "string" ? undefined : value;
  }

  has(name: string): boolean {
    return this.#find(name) !== undefined;
  }

  /**
   * Replaces all values of the name by the given value or values. An empty array deletes them.
   *
   * @throws TypeError for a malformed name or value, or if this metadata was received or has been sent.
   */
  set(name: string, value: MetadataValues): this {
    this.#assertFits(name, value);
    this.#read().delete(name);
    return this.#add(name, value);
  }

  /**
   * Adds the value or the values after the former ones of the name.
   *
   * @throws TypeError for a malformed name or value, or if this metadata was received or has been sent.
   */
  append(name: string, value: MetadataValues): this {
    this.#assertFits(name, value);
    return this.#add(name, value);
  }

  /** @throws TypeError if this metadata was received or has been sent. */
  delete(name: string): boolean {
    this.#assertUnlocked();
    this.#packed = undefined;
    return this.#read().delete(name);
  }

  /** The number of values. */
  get size(): number {
    if (this.#entries === undefined && this.#received === undefined) return 0;
    let size = 0;
    for (const value of this.#read().values()) size += Array.isArray(value) ? value.length : 1;
    return size;
  }

  /** Each name once. */
  keys(): IterableIterator<string> {
    return this.#read().keys();
  }

  /** Each value with its name. */
  *[Symbol.iterator](): IterableIterator<[name: string, value: MetadataValue]> {
    for (const [name, value] of this.#read())
      if (Array.isArray(value)) for (const each of value) yield [name, each];
      else yield [name, value];
  }

  /** The entries as an object for logs; an array where a name has several values. Bytes are shown by their length. */
  toJSON(): Record<string, string | string[]> {
    const shown: Record<string, string | string[]> = {};
    for (const [name, value] of this.#read())
      shown[name] = Array.isArray(value) ? value.map(show) : show(value);
    return shown;
  }

  #find(name: string): MetadataValue | undefined {
    if (this.#entries !== undefined) {
      const found = this.#entries.get(name);
      return Array.isArray(found) ? found[0] : found;
    }
    return this.#received === undefined ? undefined : findMetadata(this.#received, name);
  }

  #assertFits(name: string, value: MetadataValues): void {
    this.#assertUnlocked();
    const fault = entryFault(name, value);
    if (fault !== "") throw new TypeError(`metadata: ${fault}`);
  }

  #add(name: string, value: MetadataValues): this {
    this.#packed = undefined;
    const entries = this.#read();
    if (typeof value === "string" || value instanceof Uint8Array) addValue(entries, name, value);
    else for (const each of value) addValue(entries, name, each);
    return this;
  }

  #read(): Map<string, MetadataValue | MetadataValue[]> {
    if (this.#entries === undefined) {
      this.#entries = this.#received === undefined ? new Map() : readMetadata(this.#received);
      this.#received = undefined;
    }
    return this.#entries;
  }

  #copy(): Map<string, MetadataValue | MetadataValue[]> {
    const copy = new Map(this.#read());
    for (const [name, value] of copy) if (Array.isArray(value)) copy.set(name, [...value]);
    return copy;
  }

  #assertUnlocked(): void {
    if (this.#locked === "sent") throw new TypeError("metadata: the headers have been sent");
    if (this.#locked === "received")
      throw new TypeError("metadata: received metadata cannot be changed, copy it: new Metadata(…)");
  }

  #pack(): Uint8Array | undefined {
    if (this.#packed !== undefined) return this.#packed;
    if (this.#entries === undefined && this.#received === undefined) return undefined;
    const entries = this.#read();
    const block = checkedBlock(entries);
    // The owner of bytes may change them.
    if (block !== undefined && !hasBytes(block)) this.#packed = block;
    return block;
  }

  /** Metadata from a peer: a block that has been checked. */
  static #ofBlock(block: Buffer | undefined): Metadata {
    const metadata = new Metadata();
    metadata.#received = block;
    metadata.#locked = "received";
    return metadata;
  }

  static {
    receivedMetadata = (block) => Metadata.#ofBlock(block);
    blockOf = (metadata) => metadata.#pack();
    lockSent = (metadata) => {
      metadata.#locked = "sent";
    };
  }
}

const show = (value: MetadataValue): string =>
  typeof value === "string" ? value : `<${value.byteLength} bytes>`;

/** The metadata of a call without any. */
export const noMetadata: Metadata = receivedMetadata(undefined);

/**
 * The block of `metadata`; undefined when it is empty. Do not change it: it may belong to another call, too.
 *
 * @throws RpcError `invalid_argument` when a limit is exceeded.
 */
export function packMetadata(metadata: MetadataInit): Uint8Array | undefined {
  if (metadata instanceof Metadata) return blockOf(metadata);
  const repeated = repeatedBlock(metadata);
  if (repeated !== undefined) return repeated;
  if (hasNamedValues(metadata)) return blockOf(new Metadata(metadata));
  const block = checkedBlock(metadata);
  if (block !== undefined) rememberBlock(metadata, block);
  return block;
}

function checkedBlock(
  entries: ReadonlyMap<string, MetadataValues> | Readonly<Record<string, MetadataValues>>,
): Buffer | undefined {
  const block = writeMetadata(entries);
  if (typeof block !== "string") return block;
  throw new RpcError({ code: "invalid_argument", message: `metadata: ${block}` });
}

/** The metadata of a served call that its nested calls inherit. */
export interface ServedMetadata {
  /** The metadata of its request. */
  readonly metadata: Metadata | undefined;
  /** The metadata that its handler or its middleware passes on to nested calls. Undefined until it is first read. */
  readonly nestedMetadata: Metadata | undefined;
}

/** The entries that nested calls inherit by default: W3C Trace Context and Baggage. */
const inheritedNames = ["traceparent", "tracestate", "baggage"] as const;

/** W3C Trace Context: version, trace, parent and flags. Later versions may append fields. */
const traceparentPattern = /^(?!ff)[\da-f]{2}-(?!0{32})([\da-f]{32})-(?!0{16})[\da-f]{16}-[\da-f]{2}(?:-|$)/;

/** The trace that `traceparent` names. Undefined without a valid one. */
export function traceIdOf(metadata: Metadata | undefined): string | undefined {
  return traceparentPattern.exec(metadata?.get("traceparent") ?? "")?.[1];
}

/** Replaces the entries that have the same names by those of `init`. */
export function replaceEntries(into: Metadata, init: MetadataInit): void {
  for (const [name] of entriesOf(init)) into.delete(name);
  for (const [name, value] of entriesOf(init)) into.append(name, value);
}

/** Metadata for nested calls, with the entries that they inherit by default. */
export function nestedMetadataOf({ metadata }: Pick<ServedMetadata, "metadata">): Metadata {
  const nested = new Metadata();
  if (metadata !== undefined) inheritNamed(nested, metadata);
  return nested;
}

/** Whether a nested call inherits any metadata. */
export function passesOn(around: ServedMetadata | undefined): boolean {
  if (around?.nestedMetadata !== undefined) return around.nestedMetadata.size > 0;
  const metadata = around?.metadata;
  return metadata !== undefined && inheritedNames.some((name) => metadata.has(name));
}

/** Adds the entries that a nested call inherits. The call's own entries stay. */
export function inherit(into: Metadata, { metadata, nestedMetadata }: ServedMetadata): void {
  if (nestedMetadata !== undefined) {
    for (const name of nestedMetadata.keys())
      if (!into.has(name)) into.set(name, nestedMetadata.getAll(name));
  } else if (metadata !== undefined) inheritNamed(into, metadata);
}

function inheritNamed(into: Metadata, metadata: Metadata): void {
  for (const name of inheritedNames) {
    if (metadata.has(name) && !into.has(name)) into.set(name, metadata.getAll(name));
  }
}
