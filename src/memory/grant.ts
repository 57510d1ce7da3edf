import type { RegionDescriptor } from "../wire/region-descriptor.ts";

/** Memory that a peer may use for the time of a call. */
export interface Grant {
  readonly bytes: number;
  /** The memory that the peer may use. Other grants may be of the same memory. */
  readonly memory: readonly Uint8Array[];
  /** The peer has no access to the memory itself: it asks for the bytes. The grant may end at any time. */
  readonly isByRequest?: boolean | undefined;
  /** No caller waits for the call, but the peer has not said that it is off the memory. */
  onGivenUp?(): void;
  /**
   * The session ended, and the peer may still touch the memory. It is released when that is known to be over, if ever.
   */
  onHeld?(): void;
  /**
   * The peer may no longer use the memory. `onReleased` is called when no access can be in progress. Where the port
   * does not know that (`revokesKeys`), only the peer's own message may be the reason to call `release`.
   */
  release(onReleased?: () => void): void;
}

/** The ends of a grant. */
export type GrantEnds = Pick<Grant, "release" | "onHeld">;

/** The grant with other ends, which call its own. */
export function withEnds(grant: Grant, { release, onHeld }: GrantEnds): Grant {
  return {
    bytes: grant.bytes,
    memory: grant.memory,
    isByRequest: grant.isByRequest,
    onGivenUp: () => grant.onGivenUp?.(),
    onHeld: onHeld ?? (() => grant.onHeld?.()),
    release,
  };
}

/** A registration as one call uses it. */
export interface UsedRegistration {
  readonly descriptor: RegionDescriptor;
  /** The peer has no access to the memory itself. */
  readonly isByRequest: boolean;
  /** The call has ended. `onReleased` is called when no access of the peer by this call can be in progress. */
  release(onReleased: () => void): void;
}

/** Why a region is taken from a call: its owner revoked it, or the file that it shows has lost bytes. */
export type Withdrawal = "revoked" | "damaged";

/** A region in the hands of one call. */
export class RegionGrant implements Grant {
  readonly bytes: number;
  readonly memory: readonly Uint8Array[];
  readonly descriptor: RegionDescriptor;
  readonly isByRequest: boolean;
  readonly #registration: UsedRegistration;
  readonly #ends: RegionGrantEnds;
  /** A call holds it, and the caller still waits. */
  wanted = true;
  #released = false;

  constructor(registration: UsedRegistration, memory: readonly Uint8Array[], ends: RegionGrantEnds) {
    this.#registration = registration;
    this.#ends = ends;
    this.memory = memory;
    this.isByRequest = registration.isByRequest;
    this.descriptor = registration.descriptor;
    this.bytes = registration.descriptor.bytes;
  }

  /** Asks the call that holds the grant to end. */
  revoke(why: Withdrawal = "revoked"): void {
    if (!this.#released) this.#ends.onRevoke(why);
  }

  onGivenUp(): void {
    if (!this.wanted) return;
    this.wanted = false;
    this.#ends.onGivenUp();
  }

  release(onReleased?: () => void): void {
    if (this.#released) return;
    this.#released = true;
    this.#registration.release(() => {
      this.#ends.onBack(this);
      onReleased?.();
    });
  }
}

/** Is notified of the end of a grant. */
export interface RegionGrantEnds {
  /** Must end the call that holds the grant. */
  onRevoke(why: Withdrawal): void;
  /** No caller waits for the call. */
  onGivenUp(): void;
  /** The memory can no longer be reached by the grant. */
  onBack(grant: RegionGrant): void;
}
