import { randomBytes } from "node:crypto";
import type { Port, RegisteredMemory } from "../fabric/port.ts";
import type { RegionDescriptor } from "../wire/region-descriptor.ts";
import type { Grant, UsedRegistration } from "./grant.ts";

/** Makes keys for granted memory, and withdraws them: a port, or `unregistered`. */
export type KeyIssuer = Pick<Port, "register" | "deregister">;

/**
 * Issues keys that no provider knows: names by which a peer asks for the bytes. No one-sided access is possible, and a
 * withdrawal is complete at once.
 */
export const unregistered: KeyIssuer = {
  register: () => ({ index: -1, key: randomBytes(8).readBigUInt64LE(), base: 0n }),
  deregister: (_index, onReleased) => onReleased?.(),
};

/** Issues keys of a port for the one peer behind an address. */
export function issuerFor(port: Port, address: number): KeyIssuer {
  return {
    register: (memory, at, bytes, rights) => port.register(memory, at, bytes, rights, address),
    deregister: (index, onReleased) => port.deregister(index, onReleased),
  };
}

/** The segments of a region, each registered under its own key. */
export class RegionRegistration {
  /** The description that the peer gets. */
  readonly descriptor: RegionDescriptor;
  readonly #keys: KeyIssuer;
  readonly #registered: readonly RegisteredMemory[];

  /** Registers `segments` with these rights. @throws RpcError of the provider; then nothing stays registered. */
  constructor(keys: KeyIssuer, segments: readonly Uint8Array[], rights: number) {
    this.#keys = keys;
    this.#registered = registerAll(keys, segments, rights);
    const described = this.#registered.map(({ key, base }, index) => {
      const bytes = segments[index] as Uint8Array;
      granted.set(key, { bytes, address: base });
      return { key, address: base, bytes: bytes.byteLength };
    });
    const bytes = described.reduce((sum, segment) => sum + segment.bytes, 0);
    this.descriptor = { access: rights, bytes, segments: described };
  }

  /** Whether the peer has no access to the memory itself. */
  get isByRequest(): boolean {
    return this.#keys === unregistered;
  }

  /** Withdraws the keys, once. `onReleased` is called when no access can be in progress. */
  release(onReleased: () => void): void {
    let left = this.#registered.length + 1;
    const onSegment = () => {
      if (--left === 0) onReleased();
    };
    for (const { index, key } of this.#registered) {
      granted.delete(key);
      this.#keys.deregister(index, onSegment);
    }
    onSegment();
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

/** The memory behind a key that this thread granted; undefined for keys of others. */
export function grantedHere(key: bigint): GrantedMemory | undefined {
  // Called for each segment of each transfer, mostly where no memory is granted.
  return granted.size === 0 ? undefined : granted.get(key);
}

/** The memory of a region. */
export interface RegionMemory {
  readonly segments: readonly Uint8Array[];
  readonly byteLength: number;
}

/**
 * A region's registration for one peer that serves all its calls (`keys: "region"`). It ends with the region or with
 * the session, whichever ends first, and never while a call uses it.
 *
 * While the session is open, the end of a call means that the peer is off the memory, and withdraws no key. The end of
 * a session does not mean that. The registration is then a separate grant, and the calls that use it get their memory
 * back when its keys are withdrawn.
 */
export class LastingRegistration implements Grant {
  readonly memory: readonly Uint8Array[];
  readonly bytes: number;
  readonly #registration: RegionRegistration;
  readonly #onReleasing: () => void;
  readonly #onGone: (registration: LastingRegistration) => void;
  #users = 0;
  #regionDisposed = false;
  #sessionEnded = false;
  #state: "registered" | "releasing" | "gone" = "registered";
  /** Called when no access can be in progress. */
  #waiting: (() => void)[] = [];

  /** `onReleasing`: no call can begin to use it from now on. `onGone`: no access can be in progress. */
  constructor(
    registration: RegionRegistration,
    { segments, byteLength }: RegionMemory,
    onReleasing: () => void,
    onGone: (registration: LastingRegistration) => void,
  ) {
    this.#registration = registration;
    this.memory = segments;
    this.bytes = byteLength;
    this.#onReleasing = onReleasing;
    this.#onGone = onGone;
  }

  /** One more call uses it. */
  use(): UsedRegistration {
    this.#users++;
    return {
      isByRequest: this.#registration.isByRequest,
      descriptor: this.#registration.descriptor,
      release: (onReleased) => this.#leave(onReleased),
    };
  }

  #leave(onReleased: () => void): void {
    this.#users--;
    if (this.#sessionEnded && this.#state !== "gone") this.#waiting.push(onReleased);
    else onReleased();
    if (this.#regionDisposed && this.#users === 0) this.release();
  }

  onRegionDisposed(): void {
    this.#regionDisposed = true;
    if (this.#users === 0) this.release();
  }

  /** Whether calls use it: then the end of the session must release it. */
  onSessionEnd(): boolean {
    this.#sessionEnded = true;
    if (this.#users > 0) return this.#state === "registered";
    this.release();
    return false;
  }

  /** Withdraws the keys. */
  release(onReleased?: () => void): void {
    if (onReleased !== undefined) this.#waiting.push(onReleased);
    if (this.#state === "gone") this.#tell();
    if (this.#state !== "registered") return;
    this.#state = "releasing";
    this.#onReleasing();
    this.#registration.release(() => {
      this.#state = "gone";
      this.#tell();
      this.#onGone(this);
    });
  }

  #tell(): void {
    for (const onReleased of this.#waiting.splice(0)) onReleased();
  }
}

/** The lasting registrations of one session, by region. */
export class LastingRegistrations {
  readonly #keys: KeyIssuer;
  readonly #byRegion = new Map<RegionMemory, LastingRegistration>();

  constructor(keys: KeyIssuer) {
    this.#keys = keys;
  }

  /**
   * The registration of a region that has not been disposed; the first call makes it. `onGone` is called when this
   * registration has been withdrawn, and no access can be in progress.
   *
   * @throws RpcError of the provider.
   */
  of(
    region: RegionMemory,
    rights: number,
    onGone: (registration: LastingRegistration) => void,
  ): LastingRegistration {
    const known = this.#byRegion.get(region);
    if (known !== undefined) return known;
    const registration = new RegionRegistration(this.#keys, region.segments, rights);
    const onReleasing = () => void this.#byRegion.delete(region);
    const made = new LastingRegistration(registration, region, onReleasing, onGone);
    this.#byRegion.set(region, made);
    return made;
  }

  /** The session has ended. Returns the registrations in use: the peer may still touch that memory. */
  end(): LastingRegistration[] {
    return [...this.#byRegion.values()].filter((registration) => registration.onSessionEnd());
  }
}
