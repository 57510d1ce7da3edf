import { existsSync, readdirSync } from "node:fs";
import { delimiter, join } from "node:path";
import { ask, onPath, SetupError, step } from "./command.mjs";
import { wasRefused } from "./stamp.mjs";

/**
 * What the build needs from the system, by the name of the Debian (and Ubuntu) package that brings it. Each is looked
 * for by what it provides, so a compiler or a libfabric that was installed in another way counts as well.
 *
 * @typedef {object} SystemPackage
 * @property {string} name
 * @property {() => boolean | Promise<boolean>} isThere
 * @property {boolean} [isOptional] a lack is reported, and set-up goes on
 */

/** @type {readonly SystemPackage[]} */
const forBuilding = [
  {
    name: "g++",
    isThere: () => onPath(process.env.CXX ?? "g++") !== undefined || onPath("c++") !== undefined,
  },
  { name: "ninja-build", isThere: () => onPath("ninja") !== undefined },
  { name: "cmake", isThere: () => onPath("cmake") !== undefined },
  { name: "libfabric-dev", isThere: () => hasHeader("rdma/fabric.h") },
];

/** @type {readonly SystemPackage[]} */
const forTesting = [
  { name: "doctest-dev", isThere: () => hasHeader("doctest/doctest.h") },
  // The addon's copies of two structures are compared with its headers as the addon is compiled.
  { name: "librdmacm-dev", isThere: () => hasHeader("rdma/rdma_cma.h") },
  // Each version formats a little differently, so the check needs exactly this one.
  { name: "clang-format-14", isThere: async () => (await findClangFormat()) !== undefined, isOptional: true },
  // Shells whose completion of the command line is tested.
  { name: "zsh", isThere: () => onPath("zsh") !== undefined, isOptional: true },
  { name: "fish", isThere: () => onPath("fish") !== undefined, isOptional: true },
];

/** @type {readonly SystemPackage[]} */
const forBenchmarks = [
  // libfabric's own ping-pong, the floor that the addon's is held against.
  { name: "libfabric-bin", isThere: () => onPath("fi_pingpong") !== undefined, isOptional: true },
  // The NBD server in C that ours is held against, and the client of both.
  { name: "nbdkit", isThere: () => onPath("nbdkit") !== undefined, isOptional: true },
  { name: "fio", isThere: () => onPath("fio") !== undefined, isOptional: true },
];

/**
 * What the system lacks, and how to install it. Fails if the build needs a missing package that this user may not
 * install, before anything is changed.
 *
 * @param {"demo" | "bench" | "test"} purpose
 * @returns {Promise<{ says: string | undefined, install: () => Promise<readonly string[]> }>} `says`: a line for the
 * person at the terminal. `install` returns the optional packages that are not available here
 */
export async function planSystemPackages(purpose) {
  const extra = { demo: [], bench: forBenchmarks, test: forTesting }[purpose];
  const lack = await lacking([...forBuilding, ...extra]);
  const missing = lack.filter((item) => !(item.isOptional && wasRefused(item.name)));
  const nothing = { says: undefined, install: async () => [] };
  if (missing.length === 0) return nothing;

  const required = missing.filter((item) => !item.isOptional);
  const prefix = await rootPrefix();
  const hasApt = onPath("apt-get") !== undefined;
  if (hasApt && prefix !== undefined) {
    const way = prefix.length === 0 ? "as root" : "as root, by sudo";
    return {
      says: `Debian packages, ${way}: ${namesOf(missing)}`,
      install: () => install(missing, prefix),
    };
  }
  if (required.length === 0) return nothing;
  throw new SetupError(
    `System packages are missing: ${namesOf(required)}; ${hasApt ? "only root may install them" : "this system has no apt-get"}.`,
    hasApt
      ? `Run this, then the command again:\n    sudo sh -c '${byHand(required)}'`
      : "Install a C++20 compiler, Ninja, CMake 3.22 or later and libfabric's headers, then run the command again.",
  );
}

/** @param {readonly SystemPackage[]} items */
const namesOf = (items) => items.map((item) => item.name).join(" ");

/** @param {readonly SystemPackage[]} items */
const byHand = (items) => `apt-get update && apt-get install -y --no-install-recommends ${namesOf(items)}`;

/**
 * @param {readonly SystemPackage[]} missing
 * @param {readonly string[]} prefix the words that make a command run as root
 * @returns {Promise<readonly string[]>} the optional ones that could not be installed
 */
async function install(missing, prefix) {
  const required = missing.filter((item) => !item.isOptional);
  const optional = missing.filter((item) => item.isOptional);
  const advice = `Run this by hand to see what is wrong:\n    ${[...prefix, "sh"].join(" ")} -c '${byHand(missing)}'`;
  const apt = aptGet(prefix, advice);
  if (required.length > 0) {
    await apt.update();
    await apt.install(required.map(({ name }) => name));
  }
  /** @type {readonly string[]} */
  let refused = [];
  if (optional.length > 0) {
    const names = optional.map(({ name }) => name);
    try {
      if (required.length === 0) await apt.update();
      await apt.install(names);
    } catch {
      refused = names;
      console.log(`[setup] ${refused.join(" ")} cannot be installed here; going on without`);
    }
  }

  const still = await lacking(required);
  if (still.length > 0) throw new SetupError(`Installed, yet still not found: ${namesOf(still)}.`, advice);
  return refused;
}

/**
 * The installation of Debian packages.
 *
 * @param {readonly string[]} prefix the words that make a command run as root
 * @param {string} [advice] for a failure
 */
export function aptGet(prefix, advice) {
  const run = (/** @type {string} */ title, /** @type {readonly string[]} */ args) => {
    const [command = "", ...words] = [...prefix, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", ...args];
    return step(title, command, words, advice === undefined ? {} : { advice });
  };
  const install = ["install", "-y", "-q", "--no-install-recommends"];
  return {
    update: () => run("Debian's package lists", ["update", "-q"]),
    install: (/** @type {readonly string[]} */ names) =>
      run(`Debian packages ${names.join(" ")}`, [...install, ...names]),
  };
}

/**
 * The clang-format that the sources are formatted with; undefined without one of that version.
 *
 * @returns {Promise<string | undefined>}
 */
export async function findClangFormat() {
  if (onPath("clang-format-14") !== undefined) return "clang-format-14";
  if (onPath("clang-format") === undefined) return undefined;
  const { ok, output } = await ask("clang-format", ["--version"]);
  return ok && /version 14\./.test(output) ? "clang-format" : undefined;
}

/**
 * @param {readonly SystemPackage[]} items
 * @returns {Promise<SystemPackage[]>}
 */
async function lacking(items) {
  const there = await Promise.all(items.map((item) => item.isThere()));
  return items.filter((_, index) => !there[index]);
}

/**
 * Looks where compilers look, first without starting one, since a set-up with nothing to do should take no time.
 *
 * @param {string} header
 * @returns {Promise<boolean>}
 */
async function hasHeader(header) {
  const named = [process.env.CPATH, process.env.CPLUS_INCLUDE_PATH].flatMap((list) =>
    (list ?? "").split(delimiter),
  );
  const folders = [...named.filter((folder) => folder !== ""), "/usr/local/include", "/usr/include"];
  if (folders.some((folder) => existsSync(join(folder, header)))) return true;
  if (
    existsSync("/usr/include") &&
    readdirSync("/usr/include").some((entry) => existsSync(join("/usr/include", entry, header)))
  ) {
    return true;
  }
  const compiler = process.env.CXX ?? "g++";
  if (onPath(compiler) === undefined) return false;
  return (await ask(compiler, ["-E", "-x", "c++", "-"], `#include <${header}>\n`)).ok;
}

/**
 * The words that make a command run as root without a question; undefined when there is no such way.
 *
 * @returns {Promise<string[] | undefined>}
 */
export async function rootPrefix() {
  if (process.getuid?.() === 0) return [];
  if (onPath("sudo") !== undefined && (await ask("sudo", ["-n", "true"])).ok) return ["sudo", "-n"];
  return undefined;
}
