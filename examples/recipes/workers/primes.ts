import { implement } from "cinnabar";
import type { LaneContext } from "cinnabar-lanes";
import { Primes } from "./contract.ts";

/** The module of each lane: a worker thread that computes and blocks only itself. */
export default function services({ lane }: LaneContext) {
  return implement(Primes, { count: ({ below }) => ({ primes: countPrimes(below), lane: String(lane) }) });
}

function countPrimes(below: number): number {
  const composite = new Uint8Array(below);
  let primes = 0;
  for (let n = 2; n < below; n++) {
    if (composite[n] === 1) continue;
    primes++;
    for (let multiple = n * n; multiple < below; multiple += n) composite[multiple] = 1;
  }
  return primes;
}
