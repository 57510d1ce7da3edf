import { mkdirSync } from "node:fs";
import { assemble } from "./assemble.mjs";
import { pack, packOthers } from "./other-packages.mjs";
import { installTools } from "./tools.mjs";

/**
 * What `npm run package` makes.
 *
 * @typedef {object} Archives
 * @property {string} main the file of `cinnabar`
 * @property {readonly string[]} others the files of packages/ that are published by themselves
 */

/**
 * Builds the packages from their sources and packs them.
 *
 * @param {readonly import("./targets.mjs").Target[]} targets that `cinnabar` has binaries for
 * @param {string} destination the folder for the archives, made if it is not there
 * @returns {Promise<Archives & { text: string }>} the archives, and for each its name, size and sum in words
 */
export async function makePackages(targets, destination) {
  await installTools(targets);
  const folder = await assemble(targets);
  mkdirSync(destination, { recursive: true });
  const main = await pack(folder, destination);
  const others = await packOthers(destination);
  const names = targets.map(({ name }) => name).join(", ");
  const texts = [main, ...others].map(({ file, text }) => `${file}\n${text}\n`);
  return {
    main: main.file,
    others: others.map(({ file }) => file),
    text: `${texts.join("\n")}\nThe binaries are for ${names}.`,
  };
}
