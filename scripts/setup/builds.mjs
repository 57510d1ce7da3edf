import { step } from "./command.mjs";
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
  await step("the native addon", "npm", ["run", "--silent", "build:native"]);
  markCurrent("native", print);
}

/** Builds the package into dist/, then the programs that use it (examples, benchmarks, processes of tests) into build/. */
export async function buildTypeScript() {
  const config = ["tsconfig.json", "package.json", "package-lock.json"];
  const library = fingerprint([...config, "tsconfig.build.json", "src"]);
  if (!isCurrent("dist", library, ["dist/index.js"])) {
    await step("TypeScript, the package", process.execPath, [compiler, "-p", "tsconfig.build.json"]);
    markCurrent("dist", library);
  }
  const programs = fingerprint([...config, "tsconfig.programs.json", "src", "examples", "bench", "test"]);
  if (!isCurrent("programs", programs, ["build/examples"])) {
    await step("TypeScript, the programs", process.execPath, [compiler, "-p", "tsconfig.programs.json"]);
    markCurrent("programs", programs);
  }
}
