import { existsSync, readdirSync } from "node:fs";
import { delimiter, join } from "node:path";
import { ask, onPath, SetupError, step } from "./command.mjs";
import { isCurrent, markCurrent } from "./stamp.mjs";

/**
 * What the build needs from the system, by the name of the Debian (and Ubuntu) package that brings it. Each is looked
 * for by what it provides, so a compiler or a libfabric that was installed in another way counts as well.
 *
 * @typedef {object} SystemPackage
 * @property {string} name
 * @property {() => boolean | Promise<boolean>} isThere
 * @property {boolean} [isOptional] a lack is told and lived with
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
  // Each version formats a little differently, so the check wants this one and none other.
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
 * @param {"demo" | "bench" | "test"} purpose
 * @returns {Promise<readonly string[]>} the optional packages that cannot be had here
 */
export async function installSystemPackages(purpose) {
  const extra = { demo: [], bench: forBenchmarks, test: forTesting }[purpose];
  const lack = await lacking([...forBuilding, ...extra]);
  const missing = lack.filter((item) => !(item.isOptional && wasRefused(item)));
  if (missing.length === 0) return [];

  const names = missing.map((item) => item.name);
  const byHand = `apt-get update && apt-get install -y --no-install-recommends ${names.join(" ")}`;
  const required = missing.filter((item) => !item.isOptional);
  const prefix = await rootPrefix();
  if (onPath("apt-get") === undefined || prefix === undefined) {
    if (required.length === 0) return [];
    const why = onPath("apt-get") === undefined ? "this system has no apt-get" : "only root may install them";
    throw new SetupError(
      `System packages are missing: ${names.join(", ")}; ${why}.`,
      onPath("apt-get") === undefined
        ? "Install a C++20 compiler, Ninja, CMake 3.22 or later and libfabric's headers, then run the command again."
        : `Run this, then the command again:\n    sudo sh -c '${byHand}'`,
    );
  }

  const env = { DEBIAN_FRONTEND: "noninteractive" };
  const advice = `Run this by hand to see what is wrong:\n    ${prefix.join(" ")} sh -c '${byHand}'`.replace(
    "     sh",
    "    sh",
  );
  /** @param {readonly string[]} args */
  const apt = (...args) =>
    /** @type {const} */ ([...prefix, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", ...args]);
  const [update, ...updateArgs] = apt("update", "-q");
  const [install, ...installArgs] = apt("install", "-y", "-q", "--no-install-recommends");
  const listing = () => step("Debian's package lists", String(update), updateArgs, { env, advice });
  /** @param {readonly SystemPackage[]} items */
  const installing = (items) => {
    const names = items.map((item) => item.name);
    return step(`Debian packages ${names.join(" ")}`, String(install), [...installArgs, ...names], {
      env,
      advice,
    });
  };
  if (required.length > 0) {
    await listing();
    await installing(required);
  }
  const optional = missing.filter((item) => item.isOptional);
  /** @type {readonly string[]} */
  let refused = [];
  if (optional.length > 0) {
    try {
      if (required.length === 0) await listing();
      await installing(optional);
    } catch {
      refused = optional.map((item) => item.name);
      console.log(`[setup] ${refused.join(" ")} cannot be installed here; going on without`);
    }
  }

  const still = (await lacking(required)).map((item) => item.name);
  if (still.length > 0) throw new SetupError(`Installed, yet still not found: ${still.join(", ")}.`, advice);
  return refused;
}

/**
 * Notes what could not be had, until the npm packages are installed anew: to try again each time takes longer than all
 * else.
 *
 * @param {readonly string[]} names
 */
export function rememberRefused(names) {
  for (const name of names) markCurrent(refusal(name), "refused");
}

/** @param {SystemPackage} item */
const wasRefused = (item) => isCurrent(refusal(item.name), "refused", []);

/** @param {string} name */
const refusal = (name) => `without-${name}`;

/**
 * The clang-format that the sources are formatted with; undefined when there is none of that version.
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
