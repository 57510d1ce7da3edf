import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { availableParallelism } from "node:os";
import { dirname, join } from "node:path";
import { buildNative } from "../setup/builds.mjs";
import { live, root } from "../setup/command.mjs";

/** @typedef {import("./outcome.mjs").Outcome} Outcome */

/**
 * Builds the C++ tests with a preset of native/CMakePresets.json and runs each case by ctest, in a process of its own.
 *
 * @param {string} preset
 * @param {NodeJS.ProcessEnv} [env]
 * @param {readonly string[]} [args] of ctest, such as "--tests-regex"
 * @returns {Promise<Outcome>}
 */
export async function runNativeTests(preset, env = {}, args = []) {
  const folder = await buildNative(preset, "cinnabar_native_tests");
  const report = join(root, "build", "reports", `native-${preset}.xml`);
  mkdirSync(dirname(report), { recursive: true });
  rmSync(report, { force: true });
  const options = ["--test-dir", folder, "--parallel", String(availableParallelism()), "--output-on-failure"];
  const ending = await live("ctest", [...options, "--output-junit", report, ...args], { env });
  return readJunit(existsSync(report) ? readFileSync(report, "utf8") : "", ending);
}

/** For data races. The C++ tests alone, because Node itself is not built for it. */
export function runUnderThreadSanitizer() {
  return runNativeTests("tsan", { TSAN_OPTIONS: `suppressions=${join(root, "native/test/tsan.supp")}` });
}

/**
 * The first file below a folder with a name that passes.
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
 * @param {string} xml the report of ctest, in the form of JUnit
 * @param {string} ending how ctest ended
 * @returns {Outcome}
 */
export function readJunit(xml, ending) {
  const cases = [...xml.matchAll(/<testcase name="([^"]*)"[^>]* status="(\w+)"/g)];
  const problems = cases.filter(([, , status]) => status !== "run").map(([, name]) => `C++: ${name}`);
  const passed = cases.length - problems.length;
  if (problems.length === 0 && (ending !== "0" || cases.length === 0))
    problems.push(`ctest ended with ${ending}, and ${cases.length} cases have a result`);
  return { passed, failed: problems.length, problems };
}
