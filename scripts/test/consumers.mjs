import { copyFileSync, existsSync, mkdirSync, readdirSync, renameSync, rmSync, statSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { ask, root, SetupError, step } from "../setup/command.mjs";
import { fingerprint, isCurrent, markCurrent } from "../setup/stamp.mjs";
import { runVitest } from "./vitest.mjs";

/** Where the users of the package live: their tools, and the package as npm packs it. */
const folder = "build/consumers";
const manifest = "test/consumers/package.json";

/**
 * Packs the package, installs it beside the tools of its users (bundlers, test runners, compilers, several versions of
 * Node), and runs `test/consumers`. The tools take 1 GB, so neither `npm run setup` nor `npm test` has them. They have
 * no lock file: what counts is how the package fares with the tools that users get.
 *
 * @param {{ archive?: string, filters?: readonly string[], workers?: number | undefined }} [options] `archive` is the
 * package to test; by default that of `CINNABAR_TARBALL`, or one of this checkout
 */
export async function runConsumers({
  archive = process.env.CINNABAR_TARBALL,
  filters = ["test/consumers/"],
  workers,
} = {}) {
  await installTools();
  const tarball = archive ? resolve(root, archive) : await packCheckout();
  await unpack(tarball);
  return runVitest({
    name: "consumers",
    filters,
    workers,
    env: { CINNABAR_CONSUMERS: join(root, folder), CINNABAR_TARBALL: tarball },
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
 * Unpacks the package beside the tools. One of the checkout has no addon: that of the checkout's build goes where the
 * package has its own.
 *
 * @param {string} tarball
 */
async function unpack(tarball) {
  const target = join(root, folder, "node_modules", "cinnabar");
  rmSync(target, { recursive: true, force: true });
  mkdirSync(target, { recursive: true });
  await step("the package, unpacked", "tar", ["-xzf", tarball, "--strip-components=1", "-C", target]);
  const addon = join(target, "native", `linux-${process.arch}-glibc`, "cinnabar.node");
  const files = readdirSync(target, { recursive: true, withFileTypes: true }).filter((entry) =>
    entry.isFile(),
  );
  const bytes = files.reduce((sum, { parentPath, name }) => sum + statSync(join(parentPath, name)).size, 0);
  /** @param {number} size */
  const kilobytes = (size) => `${Math.round(size / 1000)} kB`;
  console.log(
    `${tarball}: ${kilobytes(statSync(tarball).size)}, unpacked ${kilobytes(bytes)} in ${files.length} files`,
  );
  if (!existsSync(addon)) {
    mkdirSync(dirname(addon), { recursive: true });
    copyFileSync(join(root, "native", "build", "Release", "cinnabar.node"), addon);
  }
}

async function packCheckout() {
  const { ok, output } = await ask("npm", ["pack", "--json", "--pack-destination", folder]);
  const name = readdirSync(join(root, folder)).find((file) => /^cinnabar-\d.*\.tgz$/.test(file));
  if (!ok || name === undefined) throw new SetupError("`npm pack` failed", output);
  const tarball = join(root, folder, "cinnabar.tgz");
  renameSync(join(root, folder, name), tarball);
  return tarball;
}
