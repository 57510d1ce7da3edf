import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

/** Where sysroots, libraries and roots of tests are kept between runs; all of it can be made again. */
export function cacheFolder() {
  const { XDG_CACHE_HOME } = process.env;
  return join(XDG_CACHE_HOME || join(homedir(), ".cache"), "cinnabar-package");
}

/**
 * A folder of the cache, made if it is not there. It appears when it is whole, so that neither an interrupted run nor
 * one beside it leaves a part of it.
 *
 * @param {string} name
 * @param {readonly (string | URL)[]} recipe what decides what is in it: texts, and files by URL
 * @param {(folder: string) => Promise<void>} make fills a folder that is not there yet
 * @returns {Promise<string>} the folder
 */
export async function kept(name, recipe, make) {
  const hash = createHash("sha256");
  for (const part of recipe) {
    const text = typeof part === "string" ? part : readFileSync(fileURLToPath(part));
    hash.update(`${text.length}\n`).update(text);
  }
  const folder = join(cacheFolder(), `${name}-${hash.digest("hex").slice(0, 12)}`);
  if (existsSync(folder)) return folder;
  mkdirSync(cacheFolder(), { recursive: true });
  const partial = `${folder}.${process.pid}`;
  rmSync(partial, { recursive: true, force: true });
  try {
    await make(partial);
    try {
      renameSync(partial, folder);
    } catch (error) {
      // Of runs beside each other the first puts its folder in place.
      if (!existsSync(folder)) throw error;
    }
  } finally {
    rmSync(partial, { recursive: true, force: true });
  }
  return folder;
}
