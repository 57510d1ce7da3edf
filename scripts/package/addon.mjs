import { copyFileSync, mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { cmakeJs } from "../setup/builds.mjs";
import { root, step } from "../setup/command.mjs";
import { fingerprint, isCurrent, markCurrent } from "../setup/stamp.mjs";
import { gccOfSuite, libfabricHeaders, sysroot } from "./sysroot.mjs";

/** @typedef {import("./targets.mjs").Target} Target */

/** What decides what the addon is made of; the lock file because it names the versions of Node-API's headers. */
const sources = [
  ...["native", "package-lock.json", "scripts/setup/debian-archive.mjs"],
  ...["addon", "sysroot", "targets"].map((name) => `scripts/package/${name}.mjs`),
];

/**
 * Builds the addon for a target over the headers and libraries of an old Debian.
 *
 * @param {Target} target
 * @returns {Promise<string>} the file, stripped
 */
export async function buildPortableAddon({ name, triple, ...target }) {
  const stamp = `portable-${name}`;
  const output = `build/portable/${name}/cinnabar.node`;
  const print = fingerprint(sources, (path) => !path.endsWith(".md"));
  const file = join(root, output);
  if (isCurrent(stamp, print, [output])) return file;
  const folder = join(root, "native", `build-${name}`);
  const built = join(folder, "Release");
  const title = `the addon, ${name}`;
  const options = {
    CMAKE_TOOLCHAIN_FILE: join(root, "native", "cmake", "portable.cmake"),
    TRIPLE: triple,
    SYSROOT: await sysroot({ name, triple, ...target }),
    GCC: gccOfSuite,
    LIBFABRIC_INCLUDE_DIR: await libfabricHeaders(),
  };
  const defined = Object.entries(options).map(([key, value]) => `--CD${key}=${value}`);
  // What an earlier toolchain left in the folder would be kept.
  rmSync(folder, { recursive: true, force: true });
  const [node, ...configure] = cmakeJs("configure", folder, ["--generator", "Ninja", ...defined]);
  await step(`${title}, configure`, node, configure);
  const [, ...build] = cmakeJs("build", folder, ["--target", "cinnabar"]);
  await step(title, node, build);
  mkdirSync(join(file, ".."), { recursive: true });
  copyFileSync(join(built, "cinnabar.node"), file);
  await step(`${title}, strip`, `${triple}-strip`, ["--strip-unneeded", file]);
  markCurrent(stamp, print);
  return file;
}
