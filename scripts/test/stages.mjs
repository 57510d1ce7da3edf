import { ask, live, root } from "../setup/command.mjs";
import { findClangFormat } from "../setup/system-packages.mjs";
import { nativeSourceFiles, runNativeTests } from "./native-tests.mjs";
import { runInEveryRun } from "./rdma.mjs";
import { runUnderSanitizers } from "./sanitizers.mjs";
import { runVitest } from "./vitest.mjs";

/**
 * @typedef {object} Outcome
 * @property {number} passed
 * @property {number} failed
 * @property {readonly string[]} problems one sentence for each thing a reader should look at
 * @property {string} [skipped] why nothing was run, where that is no failure
 *
 * @typedef {object} Stage
 * @property {string} name
 * @property {string} what
 * @property {(filters: readonly string[]) => Promise<Outcome>} run
 */

/** What `npm test` runs, quickest to answer first. @type {readonly Stage[]} */
export const stages = [
  {
    name: "biome",
    what: "format, lint and import order",
    run: () => asOne("node_modules/.bin/biome", ["ci", "--error-on-warnings"]),
  },
  { name: "clang-format", what: "format of the C++ sources", run: checkNativeFormat },
  {
    name: "types-6",
    what: "types under TypeScript 6",
    run: () => asOne(process.execPath, ["node_modules/typescript/bin/tsc"]),
  },
  {
    name: "types-7",
    what: "types under TypeScript 7",
    run: () => asOne(process.execPath, ["node_modules/typescript-7/bin/tsc"]),
  },
  { name: "native", what: "C++ tests, release build", run: () => runNativeTests("release") },
  { name: "vitest", what: "all TypeScript tests", run: (filters) => runVitest({ filters }) },
  { name: "rdma", what: "tests on RDMA devices, in a guest", run: runInEveryRun },
  {
    name: "sanitizers",
    what: "C++ tests and the tests that use the addon, under ASan, UBSan and LSan",
    run: runUnderSanitizers,
  },
];

/**
 * A command that counts as one test.
 *
 * @param {string} command
 * @param {readonly string[]} args
 * @returns {Promise<Outcome>}
 */
async function asOne(command, args) {
  const ending = await live(command, args);
  if (ending === "0") return { passed: 1, failed: 0, problems: [] };
  return { passed: 0, failed: 1, problems: [`${[command, ...args].join(" ")} ended with ${ending}`] };
}

/** @returns {Promise<Outcome>} */
async function checkNativeFormat() {
  const clangFormat = await findClangFormat();
  if (clangFormat === undefined) {
    return { passed: 0, failed: 0, problems: [], skipped: "clang-format 14 is not on this machine" };
  }
  const { output } = await ask(clangFormat, ["--version"]);
  console.log(`${output.trim()} in ${root}`);
  return asOne(clangFormat, ["--dry-run", "-Werror", ...nativeSourceFiles()]);
}
