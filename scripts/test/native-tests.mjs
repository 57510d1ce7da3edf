import { spawn } from "node:child_process";
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { root, SetupError, step } from "../setup/command.mjs";

/** @typedef {import("./stages.mjs").Outcome} Outcome */

/**
 * Builds the C++ tests with a preset of native/CMakePresets.json and runs them.
 *
 * @param {string} preset
 * @param {NodeJS.ProcessEnv} [env]
 * @returns {Promise<Outcome>}
 */
export async function runNativeTests(preset, env = {}) {
  const folder = await buildNative(preset, "cinnabar_native_tests");
  const program = findBelow(folder, (name) => name === "cinnabar_native_tests");
  if (program === undefined) throw new SetupError(`No cinnabar_native_tests in ${folder} after its build`);
  const { ending, output } = await liveAndKept(program, [], env);
  return readSummary(output, ending);
}

/**
 * Configures one preset and builds one target of it.
 *
 * @param {string} preset
 * @param {string} target
 * @returns {Promise<string>} the build's folder
 */
export async function buildNative(preset, target) {
  const folder = join(root, "native", `build-${preset}`);
  await step(`configure ${preset}`, "cmake", ["-S", "native", "--preset", preset]);
  await step(`build ${target}, ${preset}`, "cmake", ["--build", folder, "--target", target]);
  return folder;
}

/**
 * The first file below a folder whose name passes.
 *
 * @param {string} folder
 * @param {(name: string) => boolean} wanted
 * @returns {string | undefined}
 */
export function findBelow(folder, wanted) {
  if (!existsSync(folder)) return undefined;
  for (const entry of readdirSync(folder, { withFileTypes: true })) {
    const path = join(folder, entry.name);
    const found = entry.isDirectory() ? findBelow(path, wanted) : wanted(entry.name) ? path : undefined;
    if (found !== undefined) return found;
  }
  return undefined;
}

/**
 * All C++ files under native/, builds left out.
 *
 * @param {string} [folder]
 * @returns {string[]}
 */
export function nativeSourceFiles(folder = "native") {
  return readdirSync(join(root, folder), { withFileTypes: true }).flatMap((entry) => {
    const path = `${folder}/${entry.name}`;
    if (entry.isDirectory()) return entry.name.startsWith("build") ? [] : nativeSourceFiles(path);
    return /\.(cc|cpp|h|hpp)$/.test(entry.name) ? [path] : [];
  });
}

/**
 * @param {string} output
 * @param {string} ending
 * @returns {Outcome}
 */
export function readSummary(output, ending) {
  // "[doctest] test cases:  12 |  12 passed | 0 failed | 0 skipped"
  const summary = /\[doctest\] test cases:\s*\d+\s*\|\s*(\d+) passed\s*\|\s*(\d+) failed/.exec(output);
  if (summary === null) {
    return { passed: 0, failed: 1, problems: [`the C++ tests ended with ${ending} and without a summary`] };
  }
  const passed = Number(summary[1]);
  const failed = Number(summary[2]);
  if (ending !== "0" && failed === 0) {
    return { passed, failed: 1, problems: [`the C++ tests ended with ${ending} though no case failed`] };
  }
  return { passed, failed, problems: failed === 0 ? [] : [`${failed} C++ test cases failed`] };
}

/**
 * @param {string} command
 * @param {readonly string[]} args
 * @param {NodeJS.ProcessEnv} env
 * @returns {Promise<{ ending: string, output: string }>}
 */
function liveAndKept(command, args, env) {
  return new Promise((resolve) => {
    let output = "";
    const child = spawn(command, args, {
      cwd: root,
      env: { ...process.env, ...env },
      stdio: ["ignore", "pipe", "inherit"],
    });
    child.stdout.on("data", (chunk) => {
      output += chunk;
      process.stdout.write(chunk);
    });
    child.once("error", (error) => resolve({ ending: error.message, output }));
    child.once("close", (status, signal) => resolve({ ending: signal ?? String(status), output }));
  });
}
