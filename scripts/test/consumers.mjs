import { copyFileSync, existsSync, mkdirSync, readdirSync, rmSync, statSync } from "node:fs";
import { basename, delimiter, dirname, join, resolve } from "node:path";
import { assembleCheckout } from "../package/assemble.mjs";
import { pack, packOthers } from "../package/other-packages.mjs";
import { root, step } from "../setup/command.mjs";
import { fingerprint, isCurrent, markCurrent } from "../setup/stamp.mjs";
import { runVitest } from "./vitest.mjs";

/** @typedef {import("../package/make.mjs").Archives} Archives */

/** Where the users of the packages live: their tools, and the packages as npm packs them. */
const folder = "build/consumers";
const manifest = "test/consumers/package.json";

/**
 * Packs the packages, puts them beside the tools of their users (bundlers, test runners, compilers, several versions
 * of Node), and runs `test/consumers`. The tools take 1.3 GB, so neither `npm run setup` nor `npm test` has them. They
 * have no lock file: what counts is how the packages fare with the tools that users get.
 *
 * @param {{ archives?: Archives, filters?: readonly string[] }} [options] `archives` are
 * the packages to test; by default those of this checkout, and `cinnabar` of `CINNABAR_TARBALL` where it names one
 */
export async function runConsumers({ archives, filters = ["test/consumers/"] } = {}) {
  await installTools();
  const { main, others } = archives ?? (await packCheckout(process.env.CINNABAR_TARBALL));
  await unpackMain(main);
  for (const other of others) await unpack(other, nameOf(other));
  return runVitest({
    name: "consumers",
    args: filters,
    env: {
      CINNABAR_CONSUMERS: join(root, folder),
      CINNABAR_TARBALL: main,
      CINNABAR_OTHER_TARBALLS: others.join(delimiter),
    },
  });
}

async function installTools() {
  const print = fingerprint([manifest]);
  if (isCurrent("consumers", print, [`${folder}/node_modules/webpack/package.json`])) return;
  mkdirSync(join(root, folder), { recursive: true });
  copyFileSync(join(root, manifest), join(root, folder, "package.json"));
  const args = [
    "install",
    "--prefix",
    folder,
    "--ignore-scripts",
    "--no-package-lock",
    "--no-audit",
    "--no-fund",
  ];
  await step("tools of the package's users", "npm", args, {
    advice: "Check that the npm registry can be reached (`npm ping`), then run the command again.",
  });
  markCurrent("consumers", print);
}

/**
 * Unpacks `cinnabar` beside the tools. One of the checkout has no addon: that of the checkout's build goes where the
 * package has its own.
 *
 * @param {string} tarball
 */
async function unpackMain(tarball) {
  const target = await unpack(tarball, "cinnabar");
  const addon = join(target, "native", `linux-${process.arch}-glibc`, "cinnabar.node");
  if (existsSync(addon)) return;
  mkdirSync(dirname(addon), { recursive: true });
  copyFileSync(join(root, "native", "build", "Release", "cinnabar.node"), addon);
}

/** @param {string} archive */
function nameOf(archive) {
  return basename(archive).replace(/-\d.*/, "");
}

/**
 * Unpacks a package beside the tools.
 *
 * @param {string} tarball
 * @param {string} name
 * @returns {Promise<string>} its folder
 */
async function unpack(tarball, name) {
  const target = join(root, folder, "node_modules", name);
  rmSync(target, { recursive: true, force: true });
  mkdirSync(target, { recursive: true });
  await step(`${name}, unpacked`, "tar", ["-xzf", tarball, "--strip-components=1", "-C", target]);
  const files = readdirSync(target, { recursive: true, withFileTypes: true }).filter((entry) =>
    entry.isFile(),
  );
  const bytes = files.reduce((sum, { parentPath, name }) => sum + statSync(join(parentPath, name)).size, 0);
  /** @param {number} size */
  const kilobytes = (size) => `${Math.round(size / 1000)} kB`;
  console.log(
    `${tarball}: ${kilobytes(statSync(tarball).size)}, unpacked ${kilobytes(bytes)} in ${files.length} files`,
  );
  return target;
}

/**
 * @param {string | undefined} given the archive of `cinnabar` that is to be tested
 * @returns {Promise<Archives>}
 */
async function packCheckout(given) {
  const destination = join(root, folder);
  const main = given ? resolve(root, given) : (await pack(await assembleCheckout(), destination)).file;
  const others = await packOthers(destination);
  return { main, others: others.map(({ file }) => file) };
}
