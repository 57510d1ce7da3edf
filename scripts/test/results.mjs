import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { ask, root } from "../setup/command.mjs";
import { fingerprint } from "../setup/stamp.mjs";

/**
 * @typedef {import("./stages.mjs").Outcome} Outcome
 *
 * @typedef {object} Result what a stage came to
 * @property {string} name
 * @property {Outcome} outcome
 * @property {number} seconds
 * @property {string} [tree] what it ran on
 * @property {boolean} [kept] it is of an earlier run
 */

const folder = join(root, "build", "reports", "stages");

/**
 * The hash of all files that git does not ignore, committed or not; without git, of what a checkout has.
 *
 * @returns {Promise<string>}
 */
export async function treeHash() {
  const { ok, output } = await ask("git", ["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
  if (!ok)
    return fingerprint(["package-lock.json", "src", "native", "packages", "test", "scripts", "examples"]);
  const hash = createHash("sha256");
  for (const path of new Set(output.split("\0").sort())) {
    const absolute = join(root, path);
    if (path === "" || !existsSync(absolute) || !statSync(absolute).isFile()) continue;
    const content = readFileSync(absolute);
    hash.update(`${path} ${content.length}\n`).update(content);
  }
  return hash.digest("hex");
}

/**
 * The file in which a stage leaves something.
 *
 * @param {string} name
 * @param {"log" | "outcome" | "result"} what
 */
export function fileOf(name, what) {
  mkdirSync(folder, { recursive: true });
  return join(folder, `${name}.${what === "log" ? "log" : `${what}.json`}`);
}

/** @param {Result} result */
export function keepResult(result) {
  const file = fileOf(result.name, "result");
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, JSON.stringify(result));
}

/**
 * What a stage came to on this very tree.
 *
 * @param {string} name
 * @param {string} tree
 * @returns {Result | undefined}
 */
export function keptResult(name, tree) {
  try {
    /** @type {Result} */
    const result = JSON.parse(readFileSync(fileOf(name, "result"), "utf8"));
    return result.tree === tree ? { ...result, kept: true } : undefined;
  } catch {
    return undefined;
  }
}

/**
 * Which stages a resumed run takes over: those that have passed on this tree. What failed or was skipped runs again.
 *
 * @param {readonly (Result | undefined)[]} results
 * @returns {Result[]}
 */
export function finished(results) {
  return results.flatMap((result) =>
    result !== undefined && result.outcome.failed === 0 && result.outcome.skipped === undefined
      ? [result]
      : [],
  );
}
