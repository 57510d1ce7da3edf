// `npm run build`, `npm run setup` and `npm pack`: builds dist/, the code of the package. The compiler writes the
// declarations, one for each file of src/. The bundler writes the code: one file for each entry, and what entries share
// in a few files beside them. dist/ is the same in a checkout and in the package, so that tests run what users get.
import { spawnSync } from "node:child_process";
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
} from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const root = fileURLToPath(new URL("..", import.meta.url));
const compiler = join(root, "node_modules/typescript-7/bin/tsc");
const bundler = join(root, "node_modules/rolldown/dist/index.mjs");
const dist = join(root, "dist");
const command = "cli/bin/cinnabar";

/** The source of each file that programs import or run, by its name in dist/. @type {Record<string, string>} */
const entries = {};
for (const entry of Object.values(JSON.parse(readFileSync(join(root, "package.json"), "utf8")).exports))
  if (typeof entry === "object")
    entries[entry.default.slice("./dist/".length, -".js".length)] = entry["cinnabar:source"];
entries[command] = "packages/cli/src/cinnabar.ts";

for (const program of [compiler, bundler])
  if (!existsSync(program)) fail("its dependencies are not installed: run `npm ci`, then try again");

/** A folder of its own: another stage or command may be building at the same time. */
const fresh = freshFolder();
process.on("exit", () => rmSync(fresh, { recursive: true, force: true }));
declare();
await bundle();
chmodSync(join(fresh, `${command}.js`), 0o755);
copyChanged(fresh, dist);
removeOthers(fresh, dist);

function freshFolder() {
  mkdirSync(join(root, "build"), { recursive: true });
  return mkdtempSync(join(root, "build/package-"));
}

/** Checks the types of src/, and writes the declarations. */
function declare() {
  const args = [compiler, "-p", "tsconfig.build.json", "--outDir", fresh];
  const { status } = spawnSync(process.execPath, args, { cwd: root, stdio: "inherit" });
  if (status !== 0) fail("src/ does not compile");
}

async function bundle() {
  const { rolldown } = await import(pathToFileURL(bundler).href);
  const build = await rolldown({
    cwd: root,
    input: Object.fromEntries(Object.entries(entries).map(([name, source]) => [name, join(root, source)])),
    platform: "node",
    tsconfig: false,
    transform: { target: "es2022" },
    // The command line imports the package by its name, and takes what it needs of another one with it.
    resolve: {
      alias: {
        "cinnabar/inspect": join(root, "src/inspect.ts"),
        "cinnabar/options": join(root, "src/options.ts"),
        "cinnabar/standard": join(root, "src/standard.ts"),
        "cinnabar-http/json": join(root, "packages/http/src/json.ts"),
        "cinnabar-http/proto": join(root, "packages/http/src/proto.ts"),
        "cinnabar-inspect": join(root, "packages/inspect/src/index.ts"),
        "cinnabar-serve": join(root, "packages/serve/src/index.ts"),
      },
    },
    external: /^(?!cinnabar-(inspect|serve|http\/(json|proto))$)[^./]/,
    onLog(/** @type {string} */ level, /** @type {{ message: string }} */ { message }) {
      if (level === "warn") fail(message);
    },
  });
  await build.write({
    dir: fresh,
    format: "esm",
    entryFileNames: "[name].js",
    // As deep as src/fabric/libfabric/: its code finds native/ from its own place.
    chunkFileNames: "internal/chunks/[name].js",
    // Each group takes what its entry needs and no group before it has. Browsers load the first alone. Commands that
    // only look at the machine need the third of the package, and those with a URL the fourth.
    codeSplitting: {
      groups: [
        { name: "contract", test: /\/src\/contract\/standard\.ts$/, priority: 4 },
        { name: "zod", test: /\/src\/contract\.ts$/, priority: 3 },
        { name: "machine", test: /\/src\/inspect\.ts$/, priority: 2 },
        { name: "engine", test: /\/src\/standard\.ts$/, priority: 1 },
        // Not the program itself: its commands load while it runs, and would wait for it.
        {
          name: "command-line",
          test: /\/packages\/cli\/src\/(arguments|command|quantities|table)\.ts$/,
          priority: 1,
        },
        {
          name: "command-line-calls",
          test: /\/packages\/cli\/src\/(bulk-arguments|connection|json-values|remote-method|schema-check|schema-text)\.ts$/,
          priority: 1,
        },
      ],
    },
    // They are in the declarations and in the maps. Those that other bundlers read stay.
    comments: { legal: true, annotation: true, jsdoc: false },
    sourcemap: true,
    sourcemapPathTransform: (/** @type {string} */ source, /** @type {string} */ map) =>
      `cinnabar:///${relative(root, join(dirname(map), source))}`,
  });
  await build.close();
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
 * @param {string} why
 * @returns {never}
 */
function fail(why) {
  console.error(`build: the package cannot be made: ${why}`);
  process.exit(1);
}
