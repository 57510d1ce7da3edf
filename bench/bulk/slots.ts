/**
 * Memory for transfers of one size. Each lane has a slot of its own, so that more in flight touch more memory, as they
 * would; only the largest sizes share, to leave the machine some.
 */
export class Slots {
  readonly memory: Uint8Array;
  readonly bytes: number;
  readonly count: number;

  /** For so many lanes, of which there are `mostSlots` at most; `allocate` gives the memory of all slots. */
  constructor(
    bytes: number,
    lanes = mostSlots,
    allocate: (bytes: number) => Uint8Array = (total) => new Uint8Array(total),
  ) {
    this.bytes = bytes;
    this.count = slotCount(bytes, lanes);
    this.memory = bytes === 0 ? new Uint8Array(0) : allocate(bytes * this.count);
  }

  offset(lane: number): number {
    return (lane % this.count) * this.bytes;
  }

  slot(lane: number): Uint8Array {
    return this.memory.subarray(this.offset(lane), this.offset(lane) + this.bytes);
  }

  /** Fills every slot with bytes that tell it, and the side that filled it, from any other. */
  fill(side: number): void {
    for (let lane = 0; lane < this.count; lane++) patterned(this.slot(lane), side, lane);
  }

  /** @throws Error when a slot, of all or of the first so many, does not hold what `fill` of the side wrote. */
  verify(side: number, who: string, count = this.count): void {
    for (let lane = 0; lane < count; lane++) {
      if (!holds(this.slot(lane), side, lane))
        throw new Error(
          `${who}: slot ${lane} of ${this.bytes} bytes holds something else than what was sent`,
        );
    }
  }
}

const mostBytes = 256 << 20;
/** As many as there are lanes at most. */
export const mostSlots = 8;

export function slotCount(bytes: number, lanes: number): number {
  return Math.max(1, Math.min(lanes, mostSlots, Math.floor(mostBytes / bytes)));
}

/** Whether the bytes are those that `Slots.fill` puts there for that side and lane. */
export function holds(bytes: Uint8Array, side: number, lane: number): boolean {
  const expected = patterned(new Uint8Array(bytes.byteLength), side, lane);
  return Buffer.compare(bytes, expected) === 0;
}

/** The length of the pattern. No power of two is a multiple of it, so bytes in a wrong place show. */
const patternBytes = 4099;

/** Writes the side's and lane's pattern into the bytes. */
export function patterned(bytes: Uint8Array, side: number, lane: number): Uint8Array {
  const pattern = Uint8Array.from({ length: patternBytes }, (_, index) => index * 167 + side * 31 + lane * 7);
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).fill(pattern);
}
