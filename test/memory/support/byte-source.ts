import { crc32c } from "../../../src/transfer/checksum.ts";
import { seeded } from "../../matrix/random.ts";

/** Counts and sums up bytes as they pass. */
export class Checked {
  #bytes = 0;
  #sum = 0;

  take(bytes: Uint8Array): void {
    this.#bytes += bytes.byteLength;
    this.#sum = crc32c(bytes, this.#sum);
  }

  get result(): { readonly bytes: number; readonly sum: number } {
    return { bytes: this.#bytes, sum: this.#sum };
  }
}

/** A function that gives integers from 0 to below its argument, the same ones for the same seed. */
export function randomNumbers(seed: number): (below: number) => number {
  const next = seeded(seed);
  return (below) => Math.floor(next() * below);
}

/** So many bytes that repeat with no short period, in pieces of many sizes. */
export function* pieces(bytes: number, seed: number): Generator<Uint8Array> {
  const random = randomNumbers(seed);
  const most = Math.max(1, Math.min(1 << 20, bytes));
  const words = new Uint32Array((most >>> 2) + 1);
  for (let left = bytes; left > 0; ) {
    const length = Math.min(left, 1 + random(most));
    const mark = random(0xffff_ffff);
    for (let i = 0; i < words.length; i++) words[i] = Math.imul(i + mark, 0x9e3779b1);
    yield new Uint8Array(words.buffer, 0, length).slice();
    left -= length;
  }
}
