import type { Loan } from "../call/outgoing-call.ts";
import type { Port, RegisteredMemory } from "../fabric/port.ts";
import type { RegionDescriptor } from "../wire/region-descriptor.ts";
import { addLent, removeLent } from "./lent-here.ts";

/**
 * A region in the hands of one call. Each loan registers the segments anew, so its keys are of use to nobody once it has ended, on every
 * provider, however long a peer keeps them.
 */
export class RegionLoan implements Loan {
  readonly bytes: number;
  readonly descriptor: RegionDescriptor;
  readonly #port: Port;
  readonly #registered: readonly RegisteredMemory[];
  readonly #onRevoke: () => void;
  readonly #onBack: (loan: RegionLoan) => void;
  #released = false;
  #left = 0;
  #onReleased: (() => void) | undefined;

  /**
   * Registers `segments` with these rights. `onRevoke` is to end the call that holds the loan; `onBack` hears when nobody can touch the memory
   * by it any more.
   *
   * @throws RpcError what the provider says, and then nothing stays registered.
   */
  constructor(
    port: Port,
    segments: readonly Uint8Array[],
    rights: number,
    onRevoke: () => void,
    onBack: (loan: RegionLoan) => void,
  ) {
    this.#port = port;
    this.#onRevoke = onRevoke;
    this.#onBack = onBack;
    this.#registered = registerAll(port, segments, rights);
    const described = this.#registered.map(({ key, base }, index) => {
      const bytes = segments[index] as Uint8Array;
      addLent(key, { bytes, address: base });
      return { key, address: base, bytes: bytes.byteLength };
    });
    this.bytes = described.reduce((sum, { bytes }) => sum + bytes, 0);
    this.descriptor = { access: rights, bytes: this.bytes, segments: described };
  }

  /** Asks the call that holds it to end. */
  revoke(): void {
    if (!this.#released) this.#onRevoke();
  }

  /** The call has ended: withdraws the keys. `onReleased` hears when nobody is in the middle of using them, now or later. */
  release(onReleased?: () => void): void {
    if (this.#released) return;
    this.#released = true;
    this.#onReleased = onReleased;
    this.#left = this.#registered.length + 1;
    const onSegment = () => this.#onSegmentReleased();
    for (const { index, key } of this.#registered) {
      removeLent(key);
      this.#port.deregister(index, onSegment);
    }
    this.#onSegmentReleased();
  }

  #onSegmentReleased(): void {
    if (--this.#left > 0) return;
    this.#onBack(this);
    this.#onReleased?.();
  }
}

function registerAll(port: Port, segments: readonly Uint8Array[], rights: number): RegisteredMemory[] {
  const registered: RegisteredMemory[] = [];
  try {
    for (const { buffer, byteOffset, byteLength } of segments)
      registered.push(port.register(buffer, byteOffset, byteLength, rights));
    return registered;
  } catch (error) {
    for (const { index } of registered) port.deregister(index);
    throw error;
  }
}
