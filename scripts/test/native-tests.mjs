import { spawn } from "node:child_process";
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { buildNative } from "../setup/builds.mjs";
import { root } from "../setup/command.mjs";

/** @typedef {import("./stages.mjs").Outcome} Outcome */

/**
 * Builds the C++ tests with a preset of native/CMakePresets.json and runs them.
 *
 * @param {string} preset
 * @param {NodeJS.ProcessEnv} [env]
 * @param {readonly string[]} [args] which of them, as doctest takes it
 * @returns {Promise<Outcome>}
 */
export async function runNativeTests(preset, env = {}, args = []) {
  const folder = await buildNative(preset, "cinnabar_native_tests");
  const program = join(folder, "cinnabar_native_tests");
  const { ending, output } = await liveAndKept(program, ["--duration=true", ...args], env);
  return readSummary(output, ending);
}

/** For data races. The C++ tests alone, because Node itself is not built for it. */
export function runUnderThreadSanitizer() {
  return runNativeTests("tsan", { TSAN_OPTIONS: `suppressions=${join(root, "native/test/tsan.supp")}` });
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

/** "0.501234 s: a guard sees a pause", a line of doctest's for each test. */
const durations = /^(\d+\.\d+) s: (.*)$/gm;

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
  const slowest = [...output.matchAll(durations)]
    .map(([, seconds, name]) => ({ name: `C++: ${name}`, seconds: Number(seconds) }))
    .sort((a, b) => b.seconds - a.seconds)
    .slice(0, 10);
  if (ending !== "0" && failed === 0) {
    return {
      passed,
      failed: 1,
      problems: [`the C++ tests ended with ${ending} though no case failed`],
      slowest,
    };
  }
  const named = namedFailures(output);
  const problems = failed === 0 || named.length > 0 ? named : [`${failed} C++ test cases failed`];
  return { passed, failed, problems, slowest };
}

/**
 * The test cases that failed, each with its first error. Doctest heads what a case has to say with a line of "=" and
 * the case's name.
 *
 * @param {string} output
 * @returns {string[]}
 */
function namedFailures(output) {
  return output.split(/^=+$/m).flatMap((block) => {
    const name = /^TEST CASE: +(.*)$/m.exec(block)?.[1];
    const error = /^.*\bERROR: .*$/m.exec(block)?.[0].replace(root, "");
    return name === undefined || error === undefined ? [] : [`C++: ${name}: ${error}`];
  });
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
      process.stdout.write(String(chunk).replace(/^\d+\.\d+ s: .*\n/gm, ""));
    });
    child.once("error", (error) => resolve({ ending: error.message, output }));
    child.once("close", (status, signal) => resolve({ ending: signal ?? String(status), output }));
  });
}
