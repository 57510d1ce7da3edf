import { dateOf, notesOf } from "./notes.mjs";
import { versionsIn } from "./versions.mjs";

/**
 * What decides whether a checkout can be released.
 *
 * @typedef {object} Checkout
 * @property {string} version of package.json
 * @property {string} changelog the text of CHANGELOG.md
 * @property {Readonly<Record<string, string>>} versioned the texts of `versionedFiles`, by their names
 * @property {string} changes what `git status --porcelain` prints
 * @property {readonly string[]} tags of the repository
 */

/**
 * What is in the way of a release.
 *
 * @param {Checkout} checkout
 * @param {{ isRehearsal: boolean }} options a rehearsal takes a version that has no date yet
 * @returns {string[]} a sentence for each fault
 */
export function faultsOfCheckout({ version, changelog, versioned, changes, tags }, { isRehearsal }) {
  const faults = [];
  if (changes.trim() !== "")
    faults.push("The checkout has changes that are not committed: commit them first.");
  if (notesOf(changelog, version) === undefined)
    faults.push(`CHANGELOG.md says nothing of ${version}: write a section "## ${version} (DATE)".`);
  else if (!isRehearsal && dateOf(changelog, version) === undefined)
    faults.push(
      `CHANGELOG.md gives ${version} no date: npm run release -- --prepare ${version}, or --rehearse for a trial.`,
    );
  for (const [file, text] of Object.entries(versioned)) {
    const others = [...new Set(versionsIn(file, text))].filter((found) => found !== version);
    if (others.length > 0)
      faults.push(`${file} names version ${others.join(", ")}, and package.json is ${version}.`);
  }
  if (!isRehearsal && tags.includes(`v${version}`))
    faults.push(
      `The tag v${version} is there already: npm run release -- --prepare VERSION sets the next one.`,
    );
  return faults;
}
