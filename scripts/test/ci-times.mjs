/** All ends by then, with a minute to spare. */
const wholeMinutes = 44;
const setupMinutes = 12;
/** `npm test` takes at most 12 minutes on two quiet cores. */
const testMinutes = 24;
const otherMinutes = 25;

/**
 * How long each step of continuous integration may take, from when it began.
 *
 * @param {() => number} now in milliseconds, and 0 as it begins
 */
export function timesOf(now) {
  const left = () => wholeMinutes - now() / 60_000;
  /** @param {number} minutes */
  const ms = (minutes) => Math.max(1, Math.round(minutes * 60_000));
  return {
    setupMs: () => ms(setupMinutes),
    testMs: () => ms(Math.min(testMinutes, left())),
    /** For how many minutes stages are chosen. What has begun may take a quarter longer. */
    otherMinutes: () => Math.floor(Math.min(otherMinutes, left() / 1.25)),
    otherMs: () => ms(left()),
  };
}
