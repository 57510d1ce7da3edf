import type { RegionDescriptor } from "../wire/region-descriptor.ts";
import type { Grant } from "./grant.ts";

/** A registration as one call uses it. */
export interface UsedRegistration {
  readonly descriptor: RegionDescriptor;
  /** The call has ended. `onReleased` is called when no access of the peer by this call can be in progress. */
  release(onReleased: () => void): void;
}

/** A region in the hands of one call. */
export class RegionGrant implements Grant {
  readonly bytes: number;
  readonly memory: readonly Uint8Array[];
  readonly descriptor: RegionDescriptor;
  readonly isByRequest: boolean;
  readonly #registration: UsedRegistration;
  readonly #ends: RegionGrantEnds;
  /** A call holds it whose caller still waits. */
  wanted = true;
  #released = false;

  /** `isByRequest`: the peer has no access to the memory itself. */
  constructor(
    registration: UsedRegistration,
    memory: readonly Uint8Array[],
    isByRequest: boolean,
    ends: RegionGrantEnds,
  ) {
    this.#registration = registration;
    this.#ends = ends;
    this.memory = memory;
    this.isByRequest = isByRequest;
    this.descriptor = registration.descriptor;
    this.bytes = registration.descriptor.bytes;
  }

  /** Asks the call that holds the grant to end. */
  revoke(): void {
    if (!this.#released) this.#ends.onRevoke();
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

/** Is told how a grant ends. */
export interface RegionGrantEnds {
  /** Must end the call that holds the grant. */
  onRevoke(): void;
  /** Nobody waits for the call any more. */
  onGivenUp(): void;
  /** Nobody can reach the memory by the grant any more. */
  onBack(grant: RegionGrant): void;
}
