import { RpcError } from "../../base/errors/rpc-error.ts";
import { entryFault, type MetadataKey, type MetadataValue } from "./entry.ts";
import { findMetadata, hasBytes, readMetadata, writeMetadata } from "./metadata-block.ts";
import { rememberBlock, repeatedBlock } from "./repeated-object.ts";

/** Names with their values, as `Metadata`, a `Map` and the `Headers` of fetch have them. */
export interface NamedValues extends Iterable<[name: string, value: MetadataValue]> {
  has(name: string): boolean;
}

/** Metadata as a user gives it: an object, a `Metadata`, a `Map`, or the `Headers` of fetch. */
export type MetadataInit = NamedValues | Readonly<Record<string, MetadataValue>>;

/** Whether `init` has its entries as an iterable, and can be iterated again. */
function hasNamedValues(init: object): init is NamedValues {
  return Symbol.iterator in init && "has" in init && typeof init.has === "function";
}

/** @throws TypeError for an iterable that is none of those. It may be one that can be read once. */
export function entriesOf(init: MetadataInit): Iterable<[name: string, value: MetadataValue]> {
  if (hasNamedValues(init)) return init;
  if (Symbol.iterator in init)
    throw new TypeError("metadata: must be an object, a Metadata, a Map or Headers");
  return Object.entries(init);
}

/** Metadata of a peer, from a copy of its block that has been checked. */
export let receivedMetadata: (block: Buffer | undefined) => Metadata;
let blockOf: (metadata: Metadata) => Uint8Array | undefined;

/**
 * Named values that travel with a call beside its input: a token, a tenant, a trace. Names are lower-case ASCII as in
 * HTTP, at most 128 characters. Values are strings without control characters, or bytes. A call carries at most 64
 * entries and 8,192 bytes, in each direction.
 *
 * Received metadata cannot be changed; a copy can: `new Metadata(call.metadata)`.
 *
 * @example
 * const metadata = new Metadata({ "x-tenant": "acme" });
 * metadata.set("x-request", crypto.randomUUID());
 * await files.stat({ path }, { metadata });
 */
export class Metadata implements Iterable<[name: string, value: MetadataValue]> {
  #entries: Map<string, MetadataValue> | undefined;
  /** As it arrived: decoded when somebody looks. */
  #received: Buffer | undefined;
  #locked = false;
  /** As it was packed last. Kept until it changes. */
  #packed: Uint8Array | undefined;

  /** @throws TypeError for a malformed name or value, naming it. */
  constructor(init?: MetadataInit) {
    if (init instanceof Metadata) this.#entries = new Map(init);
    else if (init !== undefined) for (const [name, value] of entriesOf(init)) this.set(name, value);
  }

  /** A text value, or the value of a typed key; undefined if there is none, or bytes under a plain name. */
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

  /** A value of bytes; undefined if there is none, or a text. */
  getBytes(name: string): Uint8Array | undefined {
    const value = this.#find(name);
    return typeof value === "string" ? undefined : value;
  }

  has(name: string): boolean {
    return this.#find(name) !== undefined;
  }

  /** @throws TypeError for a malformed name or value, or if this metadata was received. */
  set(name: string, value: MetadataValue): this {
    this.#assertUnlocked();
    const fault = entryFault(name, value);
    if (fault !== "") throw new TypeError(`metadata: ${fault}`);
    this.#packed = undefined;
    this.#read().set(name, value);
    return this;
  }

  /** @throws TypeError if this metadata was received. */
  delete(name: string): boolean {
    this.#assertUnlocked();
    this.#packed = undefined;
    return this.#read().delete(name);
  }

  get size(): number {
    return this.#entries === undefined && this.#received === undefined ? 0 : this.#read().size;
  }

  [Symbol.iterator](): IterableIterator<[name: string, value: MetadataValue]> {
    return this.#read().entries();
  }

  /** The entries as an object for logs. Bytes are shown by their length. */
  toJSON(): Record<string, string> {
    const shown: Record<string, string> = {};
    for (const [name, value] of this)
      shown[name] = typeof value === "string" ? value : `<${value.byteLength} bytes>`;
    return shown;
  }

  #find(name: string): MetadataValue | undefined {
    if (this.#entries !== undefined) return this.#entries.get(name);
    return this.#received === undefined ? undefined : findMetadata(this.#received, name);
  }

  #read(): Map<string, MetadataValue> {
    if (this.#entries === undefined) {
      this.#entries = this.#received === undefined ? new Map() : readMetadata(this.#received);
      this.#received = undefined;
    }
    return this.#entries;
  }

  #assertUnlocked(): void {
    if (this.#locked)
      throw new TypeError("metadata: received metadata cannot be changed, copy it: new Metadata(…)");
  }

  #pack(): Uint8Array | undefined {
    if (this.#packed !== undefined) return this.#packed;
    const entries = this.#read();
    const block = checkedBlock(entries);
    // Bytes are their owner's, who may change them.
    if (block !== undefined && !hasBytes(block)) this.#packed = block;
    return block;
  }

  /** Metadata that a peer sent: a block that has been checked. */
  static #ofBlock(block: Buffer | undefined): Metadata {
    const metadata = new Metadata();
    metadata.#received = block;
    metadata.#locked = true;
    return metadata;
  }

  static {
    receivedMetadata = (block) => Metadata.#ofBlock(block);
    blockOf = (metadata) => metadata.#pack();
  }
}

/** The metadata of a call that carries none. */
export const noMetadata: Metadata = receivedMetadata(undefined);

/**
 * The block of `metadata`; undefined when it is empty. Nobody may change it: it may be another call's too.
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
  entries: ReadonlyMap<string, MetadataValue> | Readonly<Record<string, MetadataValue>>,
): Buffer | undefined {
  const block = writeMetadata(entries);
  if (typeof block !== "string") return block;
  throw new RpcError({ code: "invalid_argument", message: `metadata: ${block}`, origin: "local" });
}

/** A call that is being served, as the calls that its handler makes inherit from it. */
export interface ServedMetadata {
  /** What came with its request. */
  readonly metadata: Metadata | undefined;
  /** What its handler or its middleware passes on to nested calls. Undefined: nobody has looked at it. */
  readonly nestedMetadata: Metadata | undefined;
}

/** The entries that nested calls inherit by default: W3C Trace Context and Baggage. */
const inheritedNames = ["traceparent", "tracestate", "baggage"] as const;

/** Metadata for nested calls, with what they inherit by default. */
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

/** Adds what a nested call inherits. What the call has itself stays. */
export function inherit(into: Metadata, { metadata, nestedMetadata }: ServedMetadata): void {
  if (nestedMetadata !== undefined) {
    for (const [name, value] of nestedMetadata) if (!into.has(name)) into.set(name, value);
  } else if (metadata !== undefined) inheritNamed(into, metadata);
}

function inheritNamed(into: Metadata, metadata: Metadata): void {
  for (const name of inheritedNames) {
    const value = metadata.get(name);
    if (value !== undefined && !into.has(name)) into.set(name, value);
  }
}
