import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { SetupError } from "../setup/command.mjs";
import { dated } from "./notes.mjs";
import { versionedFiles, withVersion } from "./versions.mjs";

/**
 * Sets the version in every file that names it, and the date of its notes.
 *
 * @param {string} root of the checkout
 * @param {string} version
 * @param {string} date
 * @returns {string[]} the files that were changed
 */
export function prepareRelease(root, version, date) {
  if (!/^\d+\.\d+\.\d+(-[a-z]+\.\d+)?$/.test(version))
    throw new SetupError(`--prepare ${version}: a version is three numbers, as 0.2.0 or 0.2.0-beta.1.`);
  const read = (/** @type {string} */ file) => readFileSync(join(root, file), "utf8");
  const changelog = dated(read("CHANGELOG.md"), version, date);
  if (changelog === undefined)
    throw new SetupError(
      "The first section of CHANGELOG.md is of a release that has been made.",
      'Write a section "## Unreleased" above it.',
    );
  const texts = versionedFiles.map(
    (file) => /** @type {const} */ ([file, withVersion(file, read(file), version)]),
  );
  const changed = [...texts, /** @type {const} */ (["CHANGELOG.md", changelog])].filter(
    ([file, text]) => text !== read(file),
  );
  for (const [file, text] of changed) writeFileSync(join(root, file), text);
  return changed.map(([file]) => file);
}
