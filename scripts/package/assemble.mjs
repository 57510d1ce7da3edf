import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { root, SetupError, step } from "../setup/command.mjs";
import { buildPortableAddon } from "./addon.mjs";
import { buildLibfabric, bundled, libfabricSource, libraryFiles } from "./libfabric.mjs";
import { writeLicenses } from "./licenses.mjs";
import { published } from "./other-packages.mjs";
import { checkSymbols } from "./symbols.mjs";
import { libfabricHeaders } from "./sysroot.mjs";

/** @typedef {import("./targets.mjs").Target} Target */

/** Where the package is put together. */
const staging = join(root, "build", "packages", "cinnabar");

/** What `cinnabar build` needs of native/: all but tests, what is for a checkout alone, and what builds leave there. */
export function nativeSources() {
  const names = readdirSync(join(root, "native"));
  return names.filter((name) => !/^(build|test$|include$|linux-|CMakePresets|package\.json$)/.test(name));
}

/** Licences of all that is in the package, as SPDX writes it. */
const license = "Apache-2.0 AND BSD-2-Clause AND BSD-3-Clause AND MIT";

/**
 * Puts the package together in a folder of its own: what `npm pack` takes from the checkout, the binaries, the sources
 * of the addon with the headers that it needs, and the licences.
 *
 * @param {readonly Target[]} targets
 * @returns {Promise<string>} the folder
 */
export async function assemble(targets) {
  const manifest = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
  await step("the package's JavaScript", process.execPath, ["scripts/build.mjs"]);
  copyFiles(manifest, staging);
  await addNative(join(staging, "native"), targets);
  writeLicenses(join(staging, "licenses"), { libfabric: await libfabricSource(), version: bundled.version });
  const files = [...manifest.files, "native", "licenses"];
  // Yarn's Plug'n'Play would leave the addon in an archive, from which no library can be loaded.
  const final = { ...published(manifest), license, files, preferUnplugged: true };
  writeFileSync(join(staging, "package.json"), `${JSON.stringify(final, undefined, 2)}\n`);
  return staging;
}

/**
 * Puts the package of the checkout together, without binaries: for tests, which add the addon of the checkout.
 *
 * @returns {Promise<string>} the folder
 */
export async function assembleCheckout() {
  const manifest = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
  const folder = join(root, "build", "packages", "cinnabar-of-checkout");
  await step("the package's JavaScript", process.execPath, ["scripts/build.mjs"]);
  copyFiles(manifest, folder);
  writeFileSync(join(folder, "package.json"), `${JSON.stringify(published(manifest), undefined, 2)}\n`);
  return folder;
}

/**
 * Copies what package.json names as files.
 *
 * @param {{ files: readonly string[] }} manifest
 * @param {string} folder what was in it goes
 */
function copyFiles({ files }, folder) {
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  for (const entry of files) {
    const name = entry.replace(/^!/, "");
    if (!existsSync(join(root, name)))
      throw new SetupError(`package.json names ${name}, which is not there.`);
    // npm's "!" takes a part of an earlier entry away.
    if (name === entry) cpSync(join(root, name), join(folder, name), { recursive: true });
    else rmSync(join(folder, name), { recursive: true });
  }
}

/**
 * @param {string} folder
 * @param {readonly Target[]} targets
 */
async function addNative(folder, targets) {
  for (const name of nativeSources())
    cpSync(join(root, "native", name), join(folder, name), { recursive: true });
  const modules = join(root, "node_modules");
  cpSync(join(modules, "node-api-headers", "include"), join(folder, "include", "node-api"), {
    recursive: true,
  });
  for (const header of readdirSync(join(modules, "node-addon-api")).filter((name) => name.endsWith(".h")))
    cpSync(join(modules, "node-addon-api", header), join(folder, "include", "node-api", header));
  cpSync(await libfabricHeaders(), join(folder, "include"), { recursive: true });
  for (const target of targets) {
    const binaries = join(folder, target.name);
    mkdirSync(binaries);
    cpSync(await buildPortableAddon(target), join(binaries, "cinnabar.node"));
    const libraries = await buildLibfabric(target);
    for (const name of libraryFiles) cpSync(join(libraries, name), join(binaries, name));
    for (const name of ["cinnabar.node", ...libraryFiles]) await checkSymbols(target, binaries, name);
  }
}
