/** The shape of a byte stream's ring: chunks of one size, used in turn. */
export interface RingShape {
  readonly chunkBytes: number;
  readonly chunks: number;
}

/** Where chunk number `seq` lies in the ring. */
export function chunkOffset({ chunkBytes, chunks }: RingShape, seq: number): number {
  return (seq % chunks) * chunkBytes;
}

/** Something that many may wait for and one says: room has come, or data, or the end. */
export class Bell {
  #waiting: (() => void)[] = [];

  rung(): Promise<void> {
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  ring(): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const resolve of waiting) resolve();
  }
}
