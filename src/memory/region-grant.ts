import { randomBytes } from "node:crypto";
import type { Port, RegisteredMemory } from "../fabric/port.ts";
import type { RegionDescriptor } from "../wire/region-descriptor.ts";
import type { Grant } from "./grant.ts";

/** What makes keys for granted memory, and takes them back: a port, or `unregistered`. */
export type KeyIssuer = Pick<Port, "register" | "deregister">;

/**
 * Issues keys that no provider knows: names by which a peer asks for the bytes. No one-sided access is possible, and
 * what is taken back is back at once.
 */
export const unregistered: KeyIssuer = {
  register: () => ({ index: -1, key: randomBytes(8).readBigUInt64LE(), base: 0n }),
  deregister: (_index, onReleased) => onReleased?.(),
};

/**
 * A region in the hands of one call. Each grant registers the segments anew, so its keys are useless after it has
 * ended, on every provider, however long a peer keeps them.
 */
export class RegionGrant implements Grant {
  readonly bytes: number;
  readonly memory: readonly Uint8Array[];
  readonly descriptor: RegionDescriptor;
  readonly isByRequest: boolean;
  readonly #keys: KeyIssuer;
  readonly #registered: readonly RegisteredMemory[];
  readonly #onRevoke: () => void;
  readonly #onBack: (grant: RegionGrant) => void;
  readonly #onGivenUp: () => void;
  /** A call holds it whose caller still waits. */
  wanted = true;
  #released = false;
  #left = 0;
  #onReleased: (() => void) | undefined;

  /**
   * Registers `segments` with these rights. `onRevoke` must end the call that holds the grant. `onBack` is called when
   * nobody can reach the memory by the grant any more, `onGivenUp` when nobody waits for the call any more.
   *
   * @throws RpcError of the provider; then nothing stays registered.
   */
  constructor(
    keys: KeyIssuer,
    segments: readonly Uint8Array[],
    rights: number,
    onRevoke: () => void,
    onBack: (grant: RegionGrant) => void,
    onGivenUp: () => void,
  ) {
    this.#keys = keys;
    this.isByRequest = keys === unregistered;
    this.memory = segments;
    this.#onGivenUp = onGivenUp;
    this.#onRevoke = onRevoke;
    this.#onBack = onBack;
    this.#registered = registerAll(keys, segments, rights);
    const described = this.#registered.map(({ key, base }, index) => {
      const bytes = segments[index] as Uint8Array;
      addGranted(key, { bytes, address: base });
      return { key, address: base, bytes: bytes.byteLength };
    });
    this.bytes = described.reduce((sum, { bytes }) => sum + bytes, 0);
    this.descriptor = { access: rights, bytes: this.bytes, segments: described };
  }

  /** Asks the call that holds the grant to end. */
  revoke(): void {
    if (!this.#released) this.#onRevoke();
  }

  onGivenUp(): void {
    if (!this.wanted) return;
    this.wanted = false;
    this.#onGivenUp();
  }

  /** The call has ended: withdraws the keys. `onReleased` is called when no access can be in progress. */
  release(onReleased?: () => void): void {
    if (this.#released) return;
    this.#released = true;
    this.#onReleased = onReleased;
    this.#left = this.#registered.length + 1;
    const onSegment = () => this.#onSegmentReleased();
    for (const { index, key } of this.#registered) {
      removeGranted(key);
      this.#keys.deregister(index, onSegment);
    }
    this.#onSegmentReleased();
  }

  #onSegmentReleased(): void {
    if (--this.#left > 0) return;
    this.#onBack(this);
    this.#onReleased?.();
  }
}

function registerAll(keys: KeyIssuer, segments: readonly Uint8Array[], rights: number): RegisteredMemory[] {
  const registered: RegisteredMemory[] = [];
  try {
    for (const { buffer, byteOffset, byteLength } of segments)
      registered.push(keys.register(buffer, byteOffset, byteLength, rights));
    return registered;
  } catch (error) {
    for (const { index } of registered) keys.deregister(index);
    throw error;
  }
}

/**
 * What the engines of this thread have granted, by key. A peer may live in the same thread; then source and destination
 * of a transfer may be the same memory. The fabric sees only keys, this table sees buffers.
 */
const granted = new Map<bigint, GrantedMemory>();

/** The memory behind a key. */
export interface GrantedMemory {
  readonly bytes: Uint8Array;
  /** The provider's address of its first byte. */
  readonly address: bigint;
}

export function addGranted(key: bigint, memory: GrantedMemory): void {
  granted.set(key, memory);
}

export function removeGranted(key: bigint): void {
  granted.delete(key);
}

/** The memory behind a key that this thread granted; undefined for keys of others. */
export function grantedHere(key: bigint): GrantedMemory | undefined {
  return granted.get(key);
}
