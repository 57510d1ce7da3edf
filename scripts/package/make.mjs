import { createHash } from "node:crypto";
import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { step } from "../setup/command.mjs";
import { assemble } from "./assemble.mjs";
import { installTools } from "./tools.mjs";

/**
 * Builds the package from its sources and packs it.
 *
 * @param {readonly import("./targets.mjs").Target[]} targets that it has binaries for
 * @param {string} destination the folder for the archive, made if it is not there
 * @returns {Promise<{ file: string, text: string }>} the archive, and its size and sum in words
 */
export async function makePackage(targets, destination) {
  await installTools(targets);
  const folder = await assemble(targets);
  mkdirSync(destination, { recursive: true });
  const packed = await step("pack", "npm", ["pack", folder, "--json", "--pack-destination", destination]);
  const [{ filename, size, unpackedSize, entryCount }] = JSON.parse(packed.slice(packed.indexOf("[\n")));
  const file = join(destination, filename);
  const sum = createHash("sha256").update(readFileSync(file)).digest("hex");
  const names = targets.map(({ name }) => name).join(", ");
  return {
    file,
    text: `${size} bytes, ${unpackedSize} unpacked, ${entryCount} files, for ${names}\nsha256 ${sum}`,
  };
}
