/** From values to places along an axis. */
export interface Scale {
  readonly isLogarithmic: boolean;
  readonly ticks: readonly number[];
  /** Where the value stands, in the units of the drawing; what lies outside is put at the edge. */
  place(value: number): number;
}

/** From how many times the least on the greatest is shown by magnitude. */
const logarithmicFrom = 20;
/** How many ticks an axis has at most. */
const mostTicks = 7;

/** Holds all the values between two places of the drawing; by magnitude where they are far apart, or else from 0 on. */
export function scaleOf(values: readonly number[], from: number, to: number): Scale {
  const known = values.filter((value) => Number.isFinite(value) && value >= 0);
  const greatest = Math.max(...known, 0) || 1;
  const least = Math.min(...known.filter((value) => value > 0), greatest);
  return greatest / least >= logarithmicFrom
    ? logarithmic(least, greatest, from, to)
    : linear(greatest, from, to);
}

function linear(greatest: number, from: number, to: number): Scale {
  const step = niceStep(greatest / (mostTicks - 1));
  const end = Math.ceil(greatest / step) * step;
  const ticks = Array.from({ length: Math.round(end / step) + 1 }, (_, index) => index * step);
  return {
    isLogarithmic: false,
    ticks,
    place: (value) => from + (clamp(value / end) || 0) * (to - from),
  };
}

function logarithmic(least: number, greatest: number, from: number, to: number): Scale {
  const first = Math.floor(Math.log10(least));
  const last = Math.max(first + 1, Math.ceil(Math.log10(greatest)));
  const every = Math.ceil((last - first + 1) / mostTicks);
  const ticks: number[] = [];
  for (let power = first; power <= last; power += every) ticks.push(10 ** power);
  return {
    isLogarithmic: true,
    ticks,
    place: (value) => from + (clamp((Math.log10(value) - first) / (last - first)) || 0) * (to - from),
  };
}

/** 1, 2 or 5 of a power of ten. */
function niceStep(least: number): number {
  const power = 10 ** Math.floor(Math.log10(least));
  return ([1, 2, 5, 10].find((factor) => factor * power >= least) ?? 10) * power;
}

function clamp(share: number): number {
  return Math.min(1, Math.max(0, share));
}
