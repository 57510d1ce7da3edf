import { existsSync, mkdirSync, readFileSync, rmSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { lastLines, root, step } from "./command.mjs";
import { fingerprint, isCurrent, markCurrent } from "./stamp.mjs";

/**
 * TypeScript 7, which builds in a fifth of the time of 6. Both emit the same JavaScript, and `npm test` checks the
 * types under both. It is named by path because each brings a `tsc`.
 */
const compiler = "node_modules/typescript-7/bin/tsc";

/** The sources of the addon; the lock file because it decides which node-addon-api headers are compiled in. */
const nativeSources = ["native", "package-lock.json"];

/** @param {string} path */
const isNativeSource = (path) => !path.endsWith(".md") && !path.endsWith(".supp");

/** Builds the addon in its release form when its sources have changed. */
export async function buildAddon() {
  const print = fingerprint(nativeSources, isNativeSource);
  if (isCurrent("native", print, ["native/build/Release/cinnabar.node"])) return;
  removeForeignBuild();
  await buildNative("release", "cinnabar");
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
 * The command of cmake-js. With native/package.json it takes the headers of Node-API from npm, and fetches nothing.
 *
 * @param {"configure" | "build"} work
 * @param {string} folder of the build
 * @param {readonly string[]} args
 * @returns {[string, ...string[]]}
 */
export function cmakeJs(work, folder, args) {
  const program = join(root, "node_modules/cmake-js/bin/cmake-js");
  return [process.execPath, program, work, "--directory", join(root, "native"), "--out", folder, ...args];
}

/**
 * Builds one target. cmake-js makes the release build: the addon, and the C++ tests where they were asked for, so that
 * both are made of the same objects. The other builds are presets of native/CMakePresets.json.
 *
 * @param {string} preset
 * @param {"cinnabar" | "cinnabar_native_tests"} target
 * @returns {Promise<string>} the build's folder
 */
export async function buildNative(preset, target) {
  const folder = join(root, preset === "release" ? "native/build" : `native/build-${preset}`);
  const what = target === "cinnabar" ? "the addon" : "the C++ tests";
  const tests = target === "cinnabar_native_tests" ? ["--CDCINNABAR_TESTS=ON"] : [];
  const [configure, build] =
    preset === "release"
      ? [
          cmakeJs("configure", folder, ["--generator", "Ninja", ...tests]),
          cmakeJs("build", folder, ["--target", target]),
        ]
      : [
          ["cmake", "-S", "native", "--preset", preset],
          ["cmake", "--build", folder, "--target", target],
        ];
  // Stages that go on at the same time may want the same build, of which CMake and Ninja take no care.
  mkdirSync(folder, { recursive: true });
  const run = (/** @type {string} */ title, /** @type {readonly string[]} */ command) =>
    step(title, "flock", [join(folder, "lock"), ...command], { excerpt: whyNativeFailed });
  await run(`${what}, ${preset}, configure`, configure);
  await run(`${what}, ${preset}`, build);
  return folder;
}

/**
 * Compilers that run at the same time go on after an error, so the end of the output is often about other files.
 *
 * @param {string} output of a native build that failed
 * @returns {string} the errors of the compiler and the linker, or the end of the output without such errors
 */
export function whyNativeFailed(output) {
  const errors = output
    .split("\n")
    .filter((line) => /(\berror: |^CMake Error|undefined reference)/.test(line));
  return errors.length > 0 ? errors.slice(0, 12).join("\n") : lastLines(output, 30);
}

/** Packages beside `cinnabar` that examples, benchmarks and processes of tests use. Those that others need come first. */
const otherPackages = ["bulk", "http", "lanes", "group", "inspect", "nest", "nvme", "otel", "serve"];

/**
 * Builds the package with its command line into dist/, then what uses it: the other packages into their own dist/, and
 * the programs (examples, benchmarks, processes of tests) into build/. The demo needs no programs but the examples.
 *
 * @param {"demo" | "bench" | "test"} purpose
 */
export async function buildTypeScript(purpose) {
  const config = ["tsconfig.json", "package.json", "package-lock.json"];
  const forPackage = [
    ...config,
    "tsconfig.build.json",
    "scripts/build.mjs",
    "src",
    "packages/cli",
    "packages/http/src",
    "packages/inspect",
    "packages/serve/src",
  ];
  await buildPart({
    ...{ stamp: "dist", what: "the package", output: command, prints: [fingerprint(forPackage)] },
    args: ["scripts/build.mjs"],
  });
  linkCommand();
  const forPrograms = [...forPackage, "tsconfig.programs.json", "examples"];
  const others = ["packages/tsconfig.json", ...otherPackages.map((name) => `packages/${name}`)];
  // Both builds are in build/, so they share one stamp, which says which of them it is. A build of all programs
  // includes the examples.
  const examples = fingerprint([...forPrograms, "tsconfig.examples.json", ...others]);
  const programs = fingerprint([...forPrograms, ...others, "bench", "test"]);
  const forBuild = { stamp: "build", output: "build/examples" };
  if (purpose === "demo") {
    const project = "tsconfig.examples.json";
    await buildOthers(forPackage);
    await buildPart({
      ...forBuild,
      what: "the examples",
      args: compile(project),
      prints: [examples, programs],
    });
    return;
  }
  await buildOthers(forPackage);
  await buildPart({
    ...{ ...forBuild, what: "the programs", args: compile("tsconfig.programs.json"), prints: [programs] },
  });
}

/** @param {readonly string[]} forPackage */
async function buildOthers(forPackage) {
  for (const name of otherPackages)
    await buildPart({
      ...{ stamp: name, what: `cinnabar-${name}`, args: compile(`packages/${name}/tsconfig.json`) },
      ...{
        output: `packages/${name}/dist/index.js`,
        prints: [fingerprint([...forPackage, "packages/tsconfig.json", `packages/${name}`])],
      },
    });
}

/** @param {string} project */
const compile = (project) => [compiler, "-p", project];

/**
 * @param {{ stamp: string, what: string, args: readonly string[], output: string, prints: readonly string[] }} build
 * `args`: what Node runs; `prints`: what its sources come to, and after it others that will do
 */
async function buildPart({ stamp, what, args, output, prints }) {
  if (prints.some((print) => isCurrent(stamp, print, [output]))) return;
  await step(`TypeScript, ${what}`, process.execPath, args);
  markCurrent(stamp, prints[0] ?? "");
}

/** The command line, where package.json names it. */
const command = "dist/cli/bin/cinnabar.js";

/**
 * Links the command line where `npx cinnabar` looks in a checkout: npm links the commands of packages that a project
 * depends on, not the project's own.
 */
function linkCommand() {
  const link = join(root, "node_modules/.bin/cinnabar");
  if (!existsSync(link)) symlinkSync(join("../..", command), link);
}
