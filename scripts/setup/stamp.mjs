import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { root } from "./command.mjs";

// Under node_modules, so that `git clean` and a fresh clone both forget the stamps together with what they vouch for.
const folder = join(root, "node_modules", ".cinnabar-setup");

/**
 * The hash of the named files and folders: their paths and contents. Contents, not times, because a checkout changes
 * times without changing anything that matters, and a build that is skipped wrongly costs more than reading a few
 * hundred files.
 *
 * @param {readonly string[]} paths relative to the root
 * @param {(path: string) => boolean} [wanted]
 * @returns {string}
 */
export function fingerprint(paths, wanted = () => true) {
  const hash = createHash("sha256").update(`${process.platform} ${process.arch}\n`);
  for (const path of paths) addPath(hash, path, wanted);
  return hash.digest("hex");
}

/**
 * Whether `step` last succeeded on exactly this input and all it made is still there.
 *
 * @param {string} step
 * @param {string} print
 * @param {readonly string[]} outputs relative to the root
 * @returns {boolean}
 */
export function isCurrent(step, print, outputs) {
  const path = join(folder, step);
  if (!existsSync(path) || readFileSync(path, "utf8") !== print) return false;
  return outputs.every((output) => existsSync(join(root, output)));
}

/**
 * @param {string} step
 * @param {string} print
 */
export function markCurrent(step, print) {
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, step), print);
}

/**
 * Notes that a program or a package is not available, until the npm packages are installed again: a new try takes longer
 * than all the rest.
 *
 * @param {string} name
 */
export const markRefused = (name) => markCurrent(`without-${name}`, "refused");

/** @param {string} name */
export const wasRefused = (name) => isCurrent(`without-${name}`, "refused", []);

/**
 * @param {import("node:crypto").Hash} hash
 * @param {string} path
 * @param {(path: string) => boolean} wanted
 */
function addPath(hash, path, wanted) {
  const absolute = join(root, path);
  if (!existsSync(absolute)) return;
  if (statSync(absolute).isDirectory()) {
    for (const entry of readdirSync(absolute).sort()) {
      // What builds leave behind is no source.
      if (/^(node_modules|dist|build(-[\w-]+)?)$/.test(entry)) continue;
      addPath(hash, `${path}/${entry}`, wanted);
    }
  } else if (wanted(path)) {
    const content = readFileSync(absolute);
    hash.update(`${path} ${content.length}\n`).update(content);
  }
}
