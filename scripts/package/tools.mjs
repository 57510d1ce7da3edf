import { arch } from "node:process";
import { installPrograms } from "../setup/programs.mjs";

/**
 * Installs what building the package takes beside what building a checkout does.
 *
 * @param {readonly import("./targets.mjs").Target[]} targets
 */
export async function installTools(targets) {
  /** @type {Record<string, string>} */
  const programs = {
    "apt-get": "apt",
    "dpkg-deb": "dpkg",
    autoreconf: "autoconf",
    automake: "automake",
    libtoolize: "libtool",
    make: "make",
    tar: "tar",
    xz: "xz-utils",
    patchelf: "patchelf",
  };
  for (const target of targets) {
    const name = target.triple.replaceAll("_", "-");
    programs[`${target.triple}-g++`] = target.arch === arch ? "g++" : `g++-${name}`;
    programs[`${target.triple}-objdump`] = target.arch === arch ? "binutils" : `binutils-${name}`;
  }
  await installPrograms("The package cannot be built here", programs);
}
