// `npm pack` and `npm publish`: builds what the package consists of. A package without code, or with files of an
// earlier build, must not be made. What is current in dist/ is left alone, because tests may be using it.
import { spawnSync } from "node:child_process";
import {
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
} from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("..", import.meta.url));
const compiler = join(root, "node_modules/typescript-7/bin/tsc");
const dist = join(root, "dist");
/** A folder of its own: another stage or command may be packing at the same time. */
const fresh = freshFolder();
process.on("exit", () => rmSync(fresh, { recursive: true, force: true }));
/** What a user must find; each is made by another part of the build. */
const entries = ["index.js", "index.d.ts", "lanes/index.js", "cli/bin/cinnabar.js", "cli/dist/run.js"];

if (!existsSync(compiler)) fail("its dependencies are not installed: run `npm ci`, then try again");
compile("tsconfig.build.json", fresh);
// The command line goes along: `npx cinnabar`. It imports the package by its name, so dist/ must have that first.
copyChanged(fresh, dist);
compile("packages/cli/tsconfig.json", join(fresh, "cli/dist"));
cpSync(join(root, "packages/cli/bin"), join(fresh, "cli/bin"), { recursive: true });
copyChanged(fresh, dist);
removeOthers(fresh, dist);

for (const file of entries) if (!existsSync(join(dist, file))) fail(`the build has made no dist/${file}`);

function freshFolder() {
  mkdirSync(join(root, "build"), { recursive: true });
  return mkdtempSync(join(root, "build/package-"));
}

/**
 * Copies the files of a folder that differ from those of another, with their modes. Each file appears whole: a process
 * that reads the other folder meanwhile finds the former file or the new one.
 *
 * @param {string} from
 * @param {string} to
 */
function copyChanged(from, to) {
  for (const file of filesIn(from)) {
    const source = join(from, file);
    const target = join(to, file);
    if (existsSync(target) && readFileSync(target).equals(readFileSync(source))) continue;
    mkdirSync(dirname(target), { recursive: true });
    const whole = join(from, ".whole");
    copyFileSync(source, whole);
    renameSync(whole, target);
  }
}

/**
 * Removes the files of a folder that another does not have.
 *
 * @param {string} from the folder that counts
 * @param {string} to the folder that loses files
 */
function removeOthers(from, to) {
  const wanted = new Set(filesIn(from));
  for (const file of filesIn(to)) if (!wanted.has(file)) rmSync(join(to, file), { force: true });
}

/** @param {string} folder */
function filesIn(folder) {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name).slice(folder.length + 1));
}

/**
 * @param {string} project
 * @param {string} folder
 */
function compile(project, folder) {
  const command = [compiler, "-p", project, "--outDir", folder];
  const { status } = spawnSync(process.execPath, command, { cwd: root, stdio: "inherit" });
  if (status !== 0) fail(`${project} does not compile`);
}

/**
 * @param {string} why
 * @returns {never}
 */
function fail(why) {
  console.error(`prepack: the package cannot be made: ${why}`);
  process.exit(1);
}
