import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { isAbsolute, join } from "node:path";
import { ask, root, SetupError, step } from "../setup/command.mjs";
import { buildNative, findBelow, runNativeTests } from "./native-tests.mjs";
import { findings } from "./sanitizer-reports.mjs";
import { runVitest } from "./vitest.mjs";

/** @typedef {import("./stages.mjs").Outcome} Outcome */

const reports = join(root, "build", "reports", "sanitizers");

/**
 * Where tests drive the addon; what a listing of folders adds later is in it by itself. Everything else is TypeScript, in which these sanitizers
 * find nothing, and plain vitest runs it.
 */
const drivesAddon = [
  "src/fabric/native-port",
  "src/bulk/checksum",
  "src/bulk/device-memory",
  "src/bulk/slab-memory",
  "test/bulk/",
  "test/lifecycle/engine",
  "test/lifecycle/drain",
  "test/memory/",
  "test/processes/",
  "test/regression/",
  "test/unary/cancel",
  "test/unary/overflow",
  "test/unary/unary",
];

/** Of those folders, what is about policy or time: its native path is that of the others. */
const withoutNewPaths = ["admission", "balance", "idle", "overload", "suspicion"].map(
  (name) => `test/processes/${name}.test.ts`,
);

/** Tests over one entry of the provider matrix have its name in theirs. mem has no native code, and the three ways to name a tcp address are one in it. */
const sameCode = "over '?(?:mem\\b|tcp over IPv6|tcp by host name)";

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
    timeoutMs: 25 * 60_000,
    filters: filters.length > 0 ? filters : drivesAddon,
    args: [
      ...withoutNewPaths.map((pattern) => `--exclude=${pattern}`),
      `--testNamePattern=^(?!.*(?:${sameCode}))`,
    ],
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
