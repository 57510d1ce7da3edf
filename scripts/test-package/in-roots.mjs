import {
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { step } from "../setup/command.mjs";
import { programs } from "./archives.mjs";
import { acrossNamespaces, Checks, casesOf } from "./cases.mjs";
import { contentsFault, contentsFaultOfOther } from "./contents.mjs";
import { guidePackages, writeGuide } from "./guide.mjs";
import { bareRoot, inRoot, installRootTools, nodeOf, nodes, suites } from "./roots.mjs";

/** @typedef {import("../test/outcome.mjs").Outcome} Outcome */

/**
 * Installs the packages in roots of the oldest and the current Debian and runs them with each Node.
 *
 * @param {import("../package/make.mjs").Archives} archives
 * @returns {Promise<Outcome>}
 */
export async function testInRoots({ main, others }) {
  await installRootTools();
  const work = mkdtempSync(join(tmpdir(), "cinnabar-package-"));
  const shm = mkdtempSync(join("/dev/shm", "cinnabar-package-"));
  const cache = join(work, "cache");
  const checks = new Checks();
  try {
    checks.note("the package has what it must have, and nothing else", await contentsFault(main));
    for (const other of others) {
      const fault = await contentsFaultOfOther(other);
      checks.note(`${basename(other)} has what it must have, and nothing else`, fault);
    }
    await fillCache([main, ...others], cache, join(work, "filling"));
    for (const suite of suites) {
      const root = await bareRoot(suite);
      for (const major of nodes) {
        const home = newHome(join(work, `${suite}-${major}`), [main, ...others]);
        const folders = { root, node: await nodeOf(major, "x64"), home, cache };
        const name = `${suite}, Node ${major}`;
        const printed = writeGuide(join(home, "guide"));
        for (const it of casesOf(major, basename(main), others.map(nameOf), printed))
          await checks.run(`${name}: ${it.what}`, it, inRoot({ ...folders, ownNetwork: it.ownNetwork }));
        const addresses = ["tcp://127.0.0.1:0", `shm://across-${suite}-${major}`];
        const fault = await acrossNamespaces(() => inRoot({ ...folders, shm }), addresses);
        checks.note(`${name}: two process namespaces with one /dev/shm, over tcp and shm`, fault);
      }
    }
  } finally {
    rmSync(work, { recursive: true, force: true });
    rmSync(shm, { recursive: true, force: true });
  }
  return checks;
}

/** @param {string} archive @returns {import("./cases.mjs").Other} */
function nameOf(archive) {
  const file = basename(archive);
  return { file, name: file.replace(/-\d.*/, "") };
}

/**
 * npm's cache with all that the packages depend on, so that the roots need no registry.
 *
 * @param {readonly string[]} archives
 * @param {string} cache
 * @param {string} folder
 */
async function fillCache(archives, cache, folder) {
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, "package.json"), "{}");
  const where = ["--prefix", folder, "--cache", cache, "--no-audit", "--no-fund", "--ignore-scripts"];
  await step("the packages' dependencies", "npm", ["install", ...where, ...archives, ...guidePackages]);
  if (!existsSync(join(folder, "node_modules", "zod"))) throw new Error("npm install has not installed zod");
}

/**
 * A folder with the packages' files, the programs and npm, and nothing installed.
 *
 * @param {string} home
 * @param {readonly string[]} archives
 */
function newHome(home, archives) {
  mkdirSync(home);
  for (const file of [...archives, ...programs]) copyFileSync(file, join(home, basename(file)));
  const commands = join(home, ".commands");
  mkdirSync(commands);
  for (const name of ["npm", "npx"]) symlinkSync(`/opt/npm/bin/${name}-cli.js`, join(commands, name));
  return home;
}
