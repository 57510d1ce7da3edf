import { existsSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { root, step } from "./command.mjs";
import { fingerprint, isCurrent, markCurrent } from "./stamp.mjs";

/** TypeScript as the package is built with it; named by path because two versions are installed and both bring a `tsc`. */
export const compiler = "node_modules/typescript/bin/tsc";

/** The sources of the addon; the lock file because it decides which node-addon-api headers are compiled in. */
const nativeSources = ["native", "package-lock.json"];

/** @param {string} path */
const isNativeSource = (path) => !path.endsWith(".md") && !path.endsWith(".supp");

/** Builds the addon in its release form when its sources have changed. */
export async function buildAddon() {
  const print = fingerprint(nativeSources, isNativeSource);
  if (isCurrent("native", print, ["native/build/Release/cinnabar.node"])) return;
  removeForeignBuild();
  await step("the native addon", "npm", ["run", "--silent", "build:native"]);
  markCurrent("native", print);
}

/** CMake refuses a build folder that another generator has begun, or that has come along with a copied checkout. */
function removeForeignBuild() {
  const folder = join(root, "native", "build");
  const cache = join(folder, "CMakeCache.txt");
  if (!existsSync(cache)) return;
  const text = readFileSync(cache, "utf8");
  const isOurs =
    text.includes("\nCMAKE_GENERATOR:INTERNAL=Ninja\n") &&
    text.includes(`\nCMAKE_HOME_DIRECTORY:INTERNAL=${join(root, "native")}\n`);
  if (!isOurs) rmSync(folder, { recursive: true });
}

/**
 * Builds the package into dist/, then what uses it: the command line into its own dist/, the programs (examples, benchmarks, processes of tests)
 * into build/.
 */
export async function buildTypeScript() {
  const config = ["tsconfig.json", "package.json", "package-lock.json"];
  const library = fingerprint([...config, "tsconfig.build.json", "src"]);
  if (!isCurrent("dist", library, ["dist/index.js"])) {
    await step("TypeScript, the package", process.execPath, [compiler, "-p", "tsconfig.build.json"]);
    markCurrent("dist", library);
  }
  const cli = fingerprint([...config, "tsconfig.build.json", "src", "packages/cli"]);
  if (!isCurrent("cli", cli, ["packages/cli/dist/run.js"])) {
    await step("TypeScript, the command line", process.execPath, [
      compiler,
      "-p",
      "packages/cli/tsconfig.json",
    ]);
    markCurrent("cli", cli);
  }
  const programs = fingerprint([...config, "tsconfig.programs.json", "src", "examples", "bench", "test"]);
  if (!isCurrent("programs", programs, ["build/examples"])) {
    await step("TypeScript, the programs", process.execPath, [compiler, "-p", "tsconfig.programs.json"]);
    markCurrent("programs", programs);
  }
}
