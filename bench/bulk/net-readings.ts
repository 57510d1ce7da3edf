/**
 * How the receiver of a stream reads, by what it has in the end:
 * - `in place`: whole transfers in memory chosen beforehand, read straight into it, which is the fastest way node:net
 *   has to hand over a buffer
 * - `concat`: whole transfers, out of the chunks of "data" events, as most programs do it
 * - `count`: nothing but a number; the bytes go over one another in one small buffer
 */
export const readings = ["in place", "concat", "count"] as const;
export type Reading = (typeof readings)[number];
