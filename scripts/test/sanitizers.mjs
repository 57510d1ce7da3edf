import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { isAbsolute, join } from "node:path";
import { ask, root, SetupError, step } from "../setup/command.mjs";
import { buildNative, findBelow, runNativeTests } from "./native-tests.mjs";
import { findings } from "./sanitizer-reports.mjs";
import { runVitest } from "./vitest.mjs";

/** @typedef {import("./stages.mjs").Outcome} Outcome */

const reports = join(root, "build", "reports", "sanitizers");

/** Tests that never load the addon, or only see that it is there; under sanitizers they would cost time and find nothing. */
const withoutAddon = [
  "test/structure/**",
  "test/scripts/**",
  "test/model/**",
  "test/types/**",
  "src/wire/**",
  "src/contract/**",
];

/**
 * The C++ tests, then the TypeScript tests on a stock Node with the sanitizer runtime loaded first. Each process writes its report to a file of
 * its own, so a finding in a child of a child is not lost; leaks, of which Node has some of its own, are judged here.
 *
 * @param {readonly string[]} filters
 * @returns {Promise<Outcome>}
 */
export async function runUnderSanitizers(filters) {
  const folder = await buildNative("asan", "cinnabar");
  const addon = findBelow(folder, (name) => name.endsWith(".node"));
  if (addon === undefined) throw new SetupError(`No addon in ${folder} after its build`);
  rmSync(reports, { recursive: true, force: true });
  mkdirSync(reports, { recursive: true });

  const common = `log_path=${join(reports, "report")}`;
  const options = {
    ASAN_OPTIONS: `${common}:detect_leaks=1:abort_on_error=0`,
    UBSAN_OPTIONS: `${common}:print_stacktrace=1:halt_on_error=1`,
  };
  const suppressions = join(root, "native", "test", "lsan.supp");
  const native = await runNativeTests("asan", {
    ...options,
    LSAN_OPTIONS: existsSync(suppressions) ? `suppressions=${suppressions}:print_suppressions=0` : "",
  });
  const scripts = await runVitest({
    name: "vitest-asan",
    timeoutMs: 38 * 60_000,
    filters,
    args: withoutAddon.map((pattern) => `--exclude=${pattern}`),
    env: {
      ...options,
      // No suppressions: one that names Node would hide all that the addon forgets when Node calls it. No check at exit: it would
      // take seconds in each of a hundred processes to name what V8 leaves behind; each test file asks for one instead.
      LSAN_OPTIONS: "leak_check_at_exit=0",
      LD_PRELOAD: await runtime(),
      CINNABAR_ADDON: addon,
      CINNABAR_LEAK_CHECK: await buildLeakCheck(),
      // Tells tests that measure time or memory to be lenient.
      CINNABAR_SANITIZERS: "1",
    },
  });

  const found = readdirSync(reports).flatMap((name) => findings(readFileSync(join(reports, name), "utf8")));
  for (const finding of found) console.log(`\n${finding}`);
  return {
    passed: native.passed + scripts.passed,
    failed: native.failed + scripts.failed + found.length,
    problems: [...native.problems, ...scripts.problems, ...found.map((finding) => `sanitizer: ${finding}`)],
  };
}

/** Builds the addon by which a test process asks for a leak check; returns its path. */
async function buildLeakCheck() {
  const path = join(root, "build", "reports", "leak-check.node");
  const headers = "node_modules/node-api-headers/include";
  const args = [
    "-shared",
    "-fPIC",
    "-fsanitize=address",
    "-isystem",
    headers,
    "scripts/test/leak-check.cc",
    "-o",
    path,
  ];
  await step("build the leak check", process.env.CXX ?? "g++", args);
  return path;
}

/** The sanitizer runtime of the compiler; it must be loaded before Node itself, hence by name. */
async function runtime() {
  const compiler = process.env.CXX ?? "g++";
  const { ok, output } = await ask(compiler, ["-print-file-name=libasan.so"]);
  const path = output.trim();
  if (ok && isAbsolute(path)) return path;
  throw new SetupError(
    `${compiler} has no libasan.so`,
    "Install the compiler's sanitizer runtime (libasan) and run again.",
  );
}
