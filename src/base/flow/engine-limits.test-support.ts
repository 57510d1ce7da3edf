import { deriveLimits } from "./engine-limits.ts";

const gibi = 1024 * 1024 * 1024;

/** The limits of an engine with a budget of 10 GiB and a heap of 4 GiB: the defaults in the documents. */
export const usualLimits = deriveLimits(10 * gibi, 4 * gibi);
