/** @typedef {Pick<import("./stages.mjs").Stage, "name" | "seconds" | "everyTurn">} Timed */

/**
 * What of a long list runs this time: first the stages of every turn. Then it begins where the hash of the commit says,
 * goes round once, and takes each stage that still fits. The same commit has the same turn; over some commits each
 * stage has one.
 *
 * @template {Timed} S
 * @param {readonly S[]} stages
 * @param {string} hash of the commit, in hexadecimal
 * @param {number} seconds of one lane that there are
 * @returns {{ chosen: S[], left: S[] }} `chosen` in the order of the turn
 */
export function turn(stages, hash, seconds) {
  const start = stages.length === 0 ? 0 : Number.parseInt(hash.slice(0, 8), 16) % stages.length;
  /** @type {S[]} */
  const chosen = [];
  /** @type {S[]} */
  const left = [];
  let remaining = seconds;
  const round = [...stages.slice(start), ...stages.slice(0, start)];
  const isOfEvery = (/** @type {S} */ { everyTurn }) => everyTurn === true;
  for (const stage of [...round.filter(isOfEvery), ...round.filter((stage) => !isOfEvery(stage))]) {
    if (stage.seconds <= remaining) {
      remaining -= stage.seconds;
      chosen.push(stage);
    } else {
      left.push(stage);
    }
  }
  return { chosen, left };
}
