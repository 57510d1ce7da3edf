/** How long a stretch takes at most. */
const longestStretchMs = 100;
/** So many stretches in a row that brought no gain are taken for a settled rate. */
const calmStretches = 3;
/** By how much a stretch beats the best before it, where it counts as a gain. */
const leastGain = 1.1;
/**
 * A second and a half of the longest stretches. The rate also stands still before V8 has begun to compile: a call over
 * shared memory was three times as slow after half a second.
 */
const leastStretches = 15;
/** Twenty seconds of the longest stretches: what is slow by then stays slow. */
const mostStretches = 200;

/**
 * Has a subject work uncounted until its rate has settled. V8 compiles what has run, on a thread of its own: before it
 * has, a call takes ten times as long.
 *
 * @param roundMs no stretch takes longer than a round
 * @param stretch works for so many milliseconds and returns the rate, in any unit
 * @param isEnough whether enough has been done; a rate that has settled before does not end the warm-up
 */
export async function warmUp(
  roundMs: number,
  stretch: (durationMs: number) => Promise<number>,
  isEnough: () => boolean = () => true,
): Promise<void> {
  const stretchMs = Math.min(roundMs, longestStretchMs);
  let best = 0;
  const isSettled = (done: number, calm: number) =>
    done >= leastStretches && calm >= calmStretches && isEnough();
  for (let calm = 0, done = 0; done < mostStretches && !isSettled(done, calm); done++) {
    const rate = await stretch(stretchMs);
    calm = rate > best * leastGain ? 0 : calm + 1;
    best = Math.max(best, rate);
  }
}
