// `npm pack` and `npm publish`: builds what the package consists of. A package without code, or with files of an
// earlier build, must not be made. What is current in dist/ is left alone, because tests may be using it.
import { spawnSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("..", import.meta.url));
const compiler = join(root, "node_modules/typescript-7/bin/tsc");
const dist = join(root, "dist");
const fresh = join(root, "build/package");
/** What a user must find; each is made by another part of the build. */
const entries = ["index.js", "index.d.ts", "lanes/index.js", "cli/bin/cinnabar.js", "cli/dist/run.js"];

if (!existsSync(compiler)) fail("its dependencies are not installed: run `npm ci`, then try again");
rmSync(fresh, { recursive: true, force: true });
compile("tsconfig.build.json", fresh);
// The command line, which imports the package by its name, goes along: `npx cinnabar`.
replace(fresh, dist);
compile("packages/cli/tsconfig.json", join(fresh, "cli/dist"));
cpSync(join(root, "packages/cli/bin"), join(fresh, "cli/bin"), { recursive: true });
replace(fresh, dist);

for (const file of entries) if (!existsSync(join(dist, file))) fail(`the build has made no dist/${file}`);
const maps = filesIn(dist).filter((file) => file.endsWith(".map"));
if (maps.length > 0) fail(`dist/ has ${maps.length} source maps, and the sources do not go along`);

/**
 * Makes a folder the same as another, and writes only what differs.
 *
 * @param {string} from
 * @param {string} to
 */
function replace(from, to) {
  const files = filesIn(from);
  const wanted = new Set(files);
  for (const file of existsSync(to) ? filesIn(to) : []) if (!wanted.has(file)) rmSync(join(to, file));
  for (const file of files) {
    const bytes = readFileSync(join(from, file));
    const target = join(to, file);
    if (existsSync(target) && readFileSync(target).equals(bytes)) continue;
    mkdirSync(dirname(target), { recursive: true });
    writeFileSync(target, bytes);
  }
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
