import { createHash } from "node:crypto";
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { root, SetupError, step } from "../setup/command.mjs";

/**
 * A package of packages/ that is published by itself, beside `cinnabar`.
 *
 * @typedef {object} OtherPackage
 * @property {string} folder as "packages/group"
 * @property {any} manifest its package.json
 */

/** @returns {OtherPackage[]} all that are not private, as the command line is: it goes along in `cinnabar` */
export function otherPackages() {
  return readdirSync(join(root, "packages"))
    .map((name) => `packages/${name}`)
    .filter((folder) => existsSync(join(root, folder, "package.json")))
    .map((folder) => ({ folder, manifest: readManifest(folder) }))
    .filter(({ manifest }) => manifest.private !== true);
}

/**
 * @param {string} name of one of them
 * @returns {OtherPackage[]} those that it needs beside `cinnabar`
 */
export function neededBy(name) {
  const all = otherPackages();
  const needed = all.find(({ manifest }) => manifest.name === name)?.manifest.peerDependencies ?? {};
  return all.filter(({ manifest }) => manifest.name in needed);
}

/**
 * Compiles and packs them. The declarations of `cinnabar` must be in dist/.
 *
 * @param {string} destination the folder for the archives, which is there
 * @returns {Promise<{ file: string, text: string }[]>} each archive, and its size and sum in words
 */
export async function packOthers(destination) {
  const staging = join(root, "build", "packages");
  mkdirSync(staging, { recursive: true });
  const packed = [];
  for (const one of otherPackages()) {
    // Of its own: another stage or command may be packing at the same time.
    const folder = mkdtempSync(join(staging, `${one.manifest.name}-`));
    try {
      await assembleOther(one, folder);
      packed.push(await pack(folder, destination));
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  }
  return packed;
}

/**
 * Packs a folder.
 *
 * @param {string} folder
 * @param {string} destination
 * @returns {Promise<{ file: string, text: string }>} the archive, and its size and sum in words
 */
export async function pack(folder, destination) {
  const said = await step("pack", "npm", ["pack", folder, "--json", "--pack-destination", destination]);
  const [{ filename, size, unpackedSize, entryCount }] = JSON.parse(said.slice(said.indexOf("[\n")));
  const file = join(destination, filename);
  const sum = createHash("sha256").update(readFileSync(file)).digest("hex");
  return { file, text: `${size} bytes, ${unpackedSize} unpacked, ${entryCount} files\nsha256 ${sum}` };
}

/**
 * What a package.json of the checkout is in a package: without what is for the checkout alone, as the sources of entries
 * are.
 *
 * @param {any} manifest
 */
export function published({
  scripts: _scripts,
  workspaces: _workspaces,
  devDependencies: _tools,
  ...manifest
}) {
  const withoutSource = (/** @type {string} */ key, /** @type {unknown} */ value) =>
    key === "cinnabar:source" ? undefined : value;
  return JSON.parse(JSON.stringify(manifest, withoutSource));
}

/**
 * @param {OtherPackage} one
 * @param {string} staging
 */
async function assembleOther({ folder, manifest }, staging) {
  const compiler = join(root, "node_modules/typescript-7/bin/tsc");
  const output = ["--outDir", join(staging, "dist")];
  // Its declarations mention theirs, where a checkout has them.
  for (const needed of neededBy(manifest.name))
    await step(`the JavaScript of ${needed.manifest.name}`, process.execPath, [
      compiler,
      "-p",
      needed.folder,
    ]);
  await step(`the JavaScript of ${manifest.name}`, process.execPath, [compiler, "-p", folder, ...output]);
  if (!existsSync(join(root, folder, "README.md")))
    throw new SetupError(`${folder} has no README.md: npm shows it as the page of ${manifest.name}.`);
  cpSync(join(root, folder, "README.md"), join(staging, "README.md"));
  cpSync(join(root, "LICENSE"), join(staging, "LICENSE"));
  const { repository } = readManifest(".");
  const address = repository === undefined ? {} : { repository: { ...repository, directory: folder } };
  writeFileSync(
    join(staging, "package.json"),
    `${JSON.stringify({ ...published(manifest), ...address }, undefined, 2)}\n`,
  );
}

/** @param {string} folder */
function readManifest(folder) {
  return JSON.parse(readFileSync(join(root, folder, "package.json"), "utf8"));
}
