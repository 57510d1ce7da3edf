import { newerLibfabric } from "../setup/newer-libfabric.mjs";
import { preparePackage } from "./package.mjs";
import { guest, kernelOfGuest, prepareGuest } from "./rdma.mjs";

/**
 * @typedef {import("./stages.mjs").Stage} Stage
 * @typedef {import("./results.mjs").Result} Result
 */

/**
 * Leaves out, and says so, what needs a thing that takes minutes to make and is not there; for `npm test`, which a
 * person waits for.
 *
 * @param {readonly Stage[]} stages
 * @returns {Promise<{ stages: readonly Stage[], skipped: readonly Result[] }>}
 */
export async function withoutLacking(stages) {
  if (!stages.some(({ needs }) => needs === "guest") || (await kernelOfGuest()) !== undefined)
    return { stages, skipped: [] };
  const why =
    "NO TEST ON RDMA DEVICES: the guest's kernel is not built; `npm run setup -- --guest` builds it once, in some four minutes";
  return without(stages, "guest", why);
}

/**
 * Makes what the stages need, and leaves out, and says so, what needs a thing that cannot be made on this machine.
 *
 * @param {readonly Stage[]} stages
 * @returns {Promise<{ stages: readonly Stage[], skipped: readonly Result[] }>}
 */
export async function withNeeds(stages) {
  /** @type {Result[]} */
  const skipped = [];
  let rest = stages;
  for (const [need, make, what] of makers) {
    if (!rest.some(({ needs }) => needs === need)) continue;
    try {
      await make();
    } catch (error) {
      const why = `${what}: ${error instanceof Error ? error.message.split("\n")[0] : error}`;
      const split = without(rest, need, why);
      rest = split.stages;
      skipped.push(...split.skipped);
    }
  }
  return { stages: rest, skipped };
}

/** @type {readonly (readonly [NonNullable<Stage["needs"]>, () => Promise<unknown>, string])[]} */
const makers = [
  ["guest", prepareGuest, `NO TEST ON RDMA DEVICES: ${guest} has no kernel`],
  [
    "libfabric",
    async () => process.env.CINNABAR_LIBFABRIC || (await newerLibfabric("trixie")),
    "NO TEST ON A NEWER LIBFABRIC: it cannot be built here",
  ],
  ["package", preparePackage, "NO TEST OF THE INSTALLED PACKAGE: it, or bare roots, cannot be made here"],
];

/**
 * @param {readonly Stage[]} stages
 * @param {Stage["needs"]} need
 * @param {string} why
 */
function without(stages, need, why) {
  console.log(`\nSKIPPED  ${why}`);
  return {
    stages: stages.filter(({ needs }) => needs !== need),
    skipped: stages
      .filter(({ needs }) => needs === need)
      .map(({ name }) => ({
        name,
        seconds: 0,
        outcome: { passed: 0, failed: 0, problems: [], skipped: why },
      })),
  };
}
