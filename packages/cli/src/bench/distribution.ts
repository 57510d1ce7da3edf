import { UsageError } from "../command.ts";

/** Draws numbers that are known beforehand by their seed: 0 to below 1. mulberry32, public domain. */
export function seededRandom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Draws values of a distribution. `random` gives 0 to below 1. */
export type Draw = (random: () => number) => number;

/**
 * Reads a distribution: one value (`64KiB`), a range of equal chances (`64..4096`), or several of either with weights
 * (`1KiB:90,64KiB:10`). `read` reads a single value.
 *
 * @throws UsageError for another form, and what `read` throws.
 */
export function distribution(option: string, text: string, read: (value: string) => number): Draw {
  const parts = text.split(",").map((part) => {
    const [value = "", weight = "1"] = part.split(":", 2);
    const share = Number(weight);
    if (!(share > 0)) throw new UsageError(`${option}: the weight of "${part}" must be a number above 0`);
    const [low = "", high] = value.split("..", 2);
    const from = read(low);
    const to = high === undefined ? from : read(high);
    if (to < from) throw new UsageError(`${option}: the range "${value}" ends before it begins`);
    return { from, to, share };
  });
  const whole = parts.reduce((sum, { share }) => sum + share, 0);
  return (random) => {
    let left = random() * whole;
    const part = parts.find(({ share }) => (left -= share) < 0) ?? parts.at(-1);
    if (part === undefined) return 0;
    return part.from === part.to ? part.from : part.from + random() * (part.to - part.from);
  };
}
