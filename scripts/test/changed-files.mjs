import { readFileSync } from "node:fs";
import { join } from "node:path";
import { ask, root, SetupError } from "../setup/command.mjs";

/**
 * The files that differ from a revision, committed or not, new ones too.
 *
 * @param {string} reference a revision; an empty text for where the branch has left its upstream or main
 * @returns {Promise<{ files: readonly string[], since: string }>}
 */
export async function changedFiles(reference) {
  const since = reference === "" ? await whereTheBranchLeft() : await revision(reference);
  if (since === undefined) throw new SetupError(`There is no revision "${reference}"`);
  const changed = await lines(["diff", "--name-only", "--no-renames", "-z", since]);
  const added = await lines(["ls-files", "--others", "--exclude-standard", "-z"]);
  return { files: [...new Set([...changed, ...added])].sort(), since: since.slice(0, 8) };
}

/**
 * On main itself the last commit counts as the change where nothing is uncommitted, which is more useful than nothing.
 */
async function whereTheBranchLeft() {
  const head = await revision("HEAD");
  if (head === undefined) throw new SetupError("--changed needs a git checkout with a commit");
  for (const base of ["@{upstream}", "origin/HEAD", "origin/main", "main"]) {
    const { ok, output } = await ask("git", ["merge-base", "HEAD", base]);
    if (ok && output.trim() !== head) return output.trim();
  }
  const isClean = (await lines(["status", "--porcelain", "-z"])).length === 0;
  return (isClean ? await revision("HEAD~1") : undefined) ?? head;
}

/** @param {string} name */
async function revision(name) {
  const { ok, output } = await ask("git", ["rev-parse", "--verify", "--quiet", `${name}^{commit}`]);
  return ok ? output.trim() : undefined;
}

/** @param {readonly string[]} args of git, with paths that end in a zero byte as the answer */
async function lines(args) {
  const { ok, output } = await ask("git", args);
  if (!ok) throw new SetupError(`git ${args.join(" ")}: ${output.trim()}`);
  return output.split("\0").filter((line) => line !== "");
}

/** The TypeScript and JavaScript of the tree. @returns {Promise<Map<string, string>>} */
export async function readSources() {
  const files = await lines([
    "ls-files",
    "--cached",
    "--others",
    "--exclude-standard",
    "-z",
    "*.ts",
    "*.mjs",
    "*.js",
  ]);
  /** @type {Map<string, string>} */
  const sources = new Map();
  for (const file of files) {
    try {
      sources.set(file, readFileSync(join(root, file), "utf8"));
    } catch {
      // it was removed
    }
  }
  return sources;
}
