import { mkdirSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { isAbsolute, join } from "node:path";
import { buildNative } from "../setup/builds.mjs";
import { ask, root, SetupError, step } from "../setup/command.mjs";
import { findBelow, runNativeTests } from "./native-tests.mjs";
import { findings } from "./sanitizer-reports.mjs";
import { runVitest } from "./vitest.mjs";

/**
 * @typedef {import("./outcome.mjs").Outcome} Outcome
 *
 * @typedef {object} Part of the tests that drive the addon
 * @property {string} name
 * @property {boolean} [quiet] no commit's turn has it
 * @property {readonly string[]} filters paths of vitest's
 * @property {readonly string[]} [without] globs of files that do not run
 */

/** Of test/processes/, what is about policy, time or many processes: its native path is that of the others. */
const withoutNewPaths = [
  ...["admission", "balance", "idle", "overloaded-server", "rolling-restart", "storm", "suspicion"],
];

/** Processes take longest, so these are a part of their own, with those of packages. */
const firstProcesses = ["teardown", "chaos"];

/**
 * Where tests drive the addon; what a listing of folders adds later is in it by itself. Everything else is TypeScript,
 * in which these sanitizers find nothing, and plain vitest runs it.
 *
 * @type {readonly Part[]}
 */
export const partsUnderSanitizers = [
  {
    name: "calls",
    filters: [
      "src/session/connection/sealed",
      "src/fabric/native-port",
      "src/memory/pool-slabs",
      "src/security/sealing/",
      "src/transfer/checksum",
      "test/streams/streams",
      "test/unary/cancel",
      "test/unary/overflow",
      "test/unary/unary",
    ],
  },
  { name: "bulk", filters: ["test/bulk/"] },
  {
    name: "memory",
    filters: [
      ...["test/lifecycle/engine", "test/lifecycle/drain", "test/memory/", "test/regression/"],
      "packages/bulk/test/",
    ],
  },
  {
    name: "processes-1",
    quiet: true,
    filters: [
      ...firstProcesses.map((name) => `test/processes/${name}.`),
      ...["cli", "group", "lanes", "nvme"].map((name) => `packages/${name}/test/`),
    ],
    without: ["packages/**/!(*.process).test.ts"],
  },
  {
    name: "processes-2",
    quiet: true,
    filters: ["test/processes/"],
    without: [`test/processes/{${[...firstProcesses, ...withoutNewPaths]}}.*`],
  },
];

/** What every run has: a transfer, a call, memory that is lent. */
export const smokeUnderSanitizers = {
  filters: ["src/fabric/native-port", "test/bulk/transfer", "test/memory/refusal", "test/unary/cancel"],
};

/**
 * Tests over one entry of the provider matrix have its name in theirs. mem has no native code, and the three ways to
 * name a tcp address are one in it.
 */
const sameCode = "over '?(?:mem\\b|tcp over IPv6|tcp by host name)";

/** Mutated messages that the C++ tests try, of which the default is a fraction. */
const fuzzedMessages = { inStage: 1_000_000, byCommand: 10_000_000 };

/**
 * The C++ tests under AddressSanitizer and UndefinedBehaviorSanitizer.
 *
 * @returns {Promise<Outcome>}
 */
export function runNativeUnderSanitizers() {
  return runNative("native", fuzzedMessages.inStage, []);
}

/**
 * Those alone that try mutated messages, with ten times as many.
 *
 * @returns {Promise<Outcome>}
 */
export function fuzzUnderSanitizers() {
  return runNative("fuzz", fuzzedMessages.byCommand, ["--tests-regex", "mutated"]);
}

/**
 * @param {string} name
 * @param {number} messages
 * @param {readonly string[]} args
 * @returns {Promise<Outcome>}
 */
async function runNative(name, messages, args) {
  const { options, found } = reporting(name);
  const env = {
    ...options,
    LSAN_OPTIONS: `suppressions=${join(root, "native", "test", "lsan.supp")}:print_suppressions=0`,
    CINNABAR_AMOUNT: String(messages),
  };
  return withFindings(await runNativeTests("asan", env, args), found());
}

/**
 * TypeScript tests on a stock Node with the sanitizer runtime loaded first. Each process writes its report to a file of
 * its own, so a finding in a child of a child is not lost; leaks, of which Node has some of its own, are judged here.
 *
 * @param {Omit<Part, "quiet">} part
 * @returns {Promise<Outcome>}
 */
export async function runUnderSanitizers({ name, filters, without = [] }) {
  const folder = await buildNative("asan", "cinnabar");
  const addon = findBelow(folder, (file) => file.endsWith(".node"));
  if (addon === undefined) throw new SetupError(`No addon in ${folder} after its build`);
  const { options, found } = reporting(name);
  const outcome = await runVitest({
    name: `sanitizers-${name}`,
    args: [...filters, `--testNamePattern=^(?!.*(?:${sameCode}))`],
    without,
    env: {
      ...options,
      // No suppressions: one that names Node would hide all that the addon forgets when Node calls it. No check at
      // exit: it would take seconds in each of a hundred processes to name what V8 leaves behind; each test file asks
      // for one instead.
      LSAN_OPTIONS: "leak_check_at_exit=0",
      LD_PRELOAD: await runtime(),
      CINNABAR_ADDON: addon,
      CINNABAR_LEAK_CHECK: await buildLeakCheck(name),
      // Makes tests that measure time or memory lenient.
      CINNABAR_SANITIZERS: "1",
    },
  });
  return withFindings(outcome, found());
}

/**
 * A folder for the reports of one run.
 *
 * @param {string} name
 */
function reporting(name) {
  const folder = join(root, "build", "reports", "sanitizers", name);
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  const common = `log_path=${join(folder, "report")}`;
  return {
    options: {
      ASAN_OPTIONS: `${common}:detect_leaks=1:abort_on_error=0`,
      UBSAN_OPTIONS: `${common}:print_stacktrace=1:halt_on_error=1`,
    },
    found: () => readdirSync(folder).flatMap((file) => findings(readFileSync(join(folder, file), "utf8"))),
  };
}

/**
 * @param {Outcome} outcome
 * @param {readonly string[]} found
 * @returns {Outcome}
 */
function withFindings(outcome, found) {
  for (const finding of found) console.log(`\n${finding}`);
  return {
    ...outcome,
    failed: outcome.failed + found.length,
    problems: [...outcome.problems, ...found.map((finding) => `sanitizer: ${finding}`)],
  };
}

/**
 * Builds the addon by which a test process asks for a leak check; returns its path.
 *
 * @param {string} name
 */
async function buildLeakCheck(name) {
  const path = join(root, "build", "reports", `leak-check-${name}.node`);
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
