import { readdirSync } from "node:fs";
import { join } from "node:path";
import { ask, live, root } from "../setup/command.mjs";
import { findClangFormat } from "../setup/system-packages.mjs";
import { runConsumers } from "./consumers.mjs";
import { areasOfStages, runAreas } from "./libfabric.mjs";
import { nativeSourceFiles, runNativeTests, runUnderThreadSanitizer } from "./native-tests.mjs";
import { testPackage } from "./package.mjs";
import { partsOnDevices, runPartOnDevices, sealedOnDevices, smokeOnDevices } from "./rdma.mjs";
import {
  partsUnderSanitizers,
  runNativeUnderSanitizers,
  runUnderSanitizers,
  smokeUnderSanitizers,
} from "./sanitizers.mjs";
import { runSite } from "./site.mjs";
import { runVitest } from "./vitest.mjs";

/**
 * @typedef {object} Outcome
 * @property {number} passed
 * @property {number} failed
 * @property {readonly string[]} problems one sentence for each thing a reader should look at
 * @property {string} [skipped] why nothing was run, where that is no failure
 * @property {readonly Slow[]} [slowest] the tests that took longest, longest first
 * @property {readonly string[]} [leftOut] tests that have skipped themselves, a line for each file
 *
 * @typedef {object} Slow
 * @property {string} name
 * @property {number} seconds
 *
 * @typedef {object} RunOptions
 * @property {readonly string[]} [filters] the test files that `processes` and `vitest` run instead of all of theirs
 * @property {number} [workers] how many of vitest's workers the stage may have, where it shares the processors with
 * others
 *
 * @typedef {object} Stage
 * @property {string} name of groups with its part behind a dash, as "rdma-bulk"
 * @property {string} what
 * @property {number} seconds what it takes by itself on two quiet cores, once its programs are built
 * @property {"test" | "all" | "both"} within which command runs it: `npm test`, `npm run test:all` or both. Tests take
 * their long form in what `npm test` does not run
 * @property {boolean} [quiet] no commit's turn has it: it needs a machine that does nothing else, or much that takes
 * minutes to make
 * @property {boolean} [everyTurn] each commit's turn has it, because nothing else finds what it finds
 * @property {"guest" | "libfabric" | "package"} [needs] what must be made first, in minutes, where the machine does not
 * have it yet
 * @property {(options: RunOptions) => Promise<Outcome>} run
 */

/** Every stage, in the order in which they start. @type {readonly Stage[]} */
export const stages = [
  {
    name: "processes",
    what: "TypeScript tests of several processes",
    seconds: 240,
    within: "both",
    run: ({ filters = [], workers }) =>
      runVitest({ name: "processes", filters: filters.length > 0 ? filters : ["test/processes/"], workers }),
  },
  {
    name: "vitest",
    what: "all other TypeScript tests, those of src/ and packages/ too",
    seconds: 240,
    within: "both",
    run: ({ filters = [], workers }) =>
      runVitest({ filters: filters.length > 0 ? filters : foldersWithoutProcesses(), workers }),
  },
  {
    name: "biome",
    what: "format, lint and import order",
    seconds: 2,
    within: "both",
    run: () => asOne("node_modules/.bin/biome", ["ci", "--error-on-warnings"]),
  },
  {
    name: "clang-format",
    what: "format of the C++ sources",
    seconds: 3,
    within: "both",
    run: checkNativeFormat,
  },
  {
    name: "types-7",
    what: "types under TypeScript 7",
    seconds: 4,
    within: "both",
    run: () => asOne(process.execPath, ["node_modules/typescript-7/bin/tsc"]),
  },
  {
    name: "types-6",
    what: "types under TypeScript 6",
    seconds: 15,
    within: "both",
    run: () => asOne(process.execPath, ["node_modules/typescript/bin/tsc"]),
  },
  {
    name: "native",
    what: "C++ tests, release build",
    seconds: 40,
    within: "both",
    run: () => runNativeTests("release"),
  },
  {
    name: "rdma-smoke",
    what: "a smoke of the tests on RDMA devices, in the guest",
    seconds: 60,
    within: "test",
    needs: "guest",
    run: () => runPartOnDevices("smoke", smokeOnDevices),
  },
  {
    name: "sanitizers-smoke",
    what: "a smoke of the tests under ASan, UBSan and LSan",
    seconds: 100,
    within: "test",
    run: ({ workers }) => runUnderSanitizers({ name: "smoke", ...smokeUnderSanitizers, workers }),
  },
  {
    name: "long-processes",
    what: "TypeScript tests of several processes and of the model, in their long form",
    seconds: 600,
    within: "all",
    quiet: true,
    run: ({ workers }) =>
      runVitest({ name: "long-processes", filters: ["test/processes/", "test/model/"], workers }),
  },
  {
    name: "long-calls",
    what: "all other TypeScript tests that have a long form",
    seconds: 300,
    within: "all",
    run: ({ workers }) =>
      runVitest({ name: "long-calls", filters: foldersWithLongForm.map((name) => `test/${name}/`), workers }),
  },
  {
    name: "sealed",
    what: "TypeScript tests of calls and bulk over sealed sessions",
    seconds: 200,
    within: "all",
    run: ({ workers }) =>
      runVitest({
        name: "sealed",
        filters: foldersSecured.map((name) => `test/${name}/`),
        env: { CINNABAR_TEST_SECURED: "1" },
        workers,
      }),
  },
  ...partsOnDevices().map(
    ({ name, files, seconds, quiet }) =>
      /** @type {Stage} */ ({
        name: `rdma-${name}`,
        what: `tests on RDMA devices, in the guest: ${files.length} files`,
        seconds,
        quiet,
        within: "all",
        needs: "guest",
        run: () => runPartOnDevices(name, files),
      }),
  ),
  {
    name: "rdma-sealed",
    what: "tests on RDMA devices over sealed sessions, in the guest",
    seconds: 150,
    within: "all",
    needs: "guest",
    run: () => runPartOnDevices("sealed", sealedOnDevices, ["CINNABAR_TEST_SECURED=1"]),
  },
  {
    name: "sanitizers-native",
    what: "C++ tests under ASan, UBSan and LSan",
    seconds: 120,
    within: "all",
    run: runNativeUnderSanitizers,
  },
  ...partsUnderSanitizers.map(
    ({ seconds, quiet = false, ...part }) =>
      /** @type {Stage} */ ({
        name: `sanitizers-${part.name}`,
        what: `tests that use the addon under ASan, UBSan and LSan: ${part.filters.join(" ")}`,
        seconds,
        quiet,
        within: "all",
        run: ({ workers }) => runUnderSanitizers({ ...part, workers }),
      }),
  ),
  {
    name: "site",
    what: "the site of the documentation: built, its links checked, looked at in a browser",
    seconds: 120,
    within: "all",
    run: runSite,
  },
  {
    name: "native-debug",
    what: "C++ tests, debug build, every file compiled by itself",
    seconds: 120,
    within: "all",
    everyTurn: true,
    run: () => runNativeTests("debug"),
  },
  {
    name: "tsan",
    what: "C++ tests under ThreadSanitizer",
    seconds: 120,
    within: "all",
    run: runUnderThreadSanitizer,
  },
  ...areasOfStages().map(
    ({ name, areas, seconds, quiet }) =>
      /** @type {Stage} */ ({
        name: `libfabric-${name}`,
        what: `tests on Debian's newer libfabric: ${areas.join(" ")}`,
        seconds,
        quiet,
        within: "all",
        needs: "libfabric",
        run: ({ workers }) => runAreas(name, areas, workers),
      }),
  ),
  {
    name: "consumers",
    what: "the package under bundlers, compilers, test runners and versions of Node; installs 1 GB of tools",
    seconds: 400,
    within: "all",
    run: ({ workers }) => runConsumers({ workers }),
  },
  {
    name: "package",
    what: "the package, installed in bare roots without compiler and libfabric with each Node, and on RDMA devices in the guest",
    seconds: 290,
    within: "all",
    needs: "package",
    quiet: true,
    run: testPackage,
  },
];

/** What `npm test` runs. */
export const testStages = stages.filter(({ within }) => within !== "all");

/** What `npm run test:all` runs: everything. */
export const allStages = stages.filter(({ within }) => within !== "test");

/** Beside test/processes and test/model: see test/matrix/long.ts. */
export const foldersWithLongForm = [
  ...[
    "admission",
    "balance",
    "bench",
    "bulk",
    "conformance",
    "flow",
    "hostile",
    "lifecycle",
    "memory",
    "observe",
  ],
  ...["middleware", "regression", "retry", "security", "streams", "types", "unary"],
];

/** What runs once more over sealed sessions: see test/matrix/secured.ts. */
const foldersSecured = ["bulk", "memory", "metadata", "middleware", "streams", "unary"];

/** The folders of TypeScript tests that the stage `vitest` has. */
export function foldersWithoutProcesses() {
  const folders = readdirSync(join(root, "test"), { withFileTypes: true })
    .filter((entry) => entry.isDirectory() && !["processes", "consumers"].includes(entry.name))
    .map((entry) => `test/${entry.name}/`);
  return ["src/", ...folders];
}

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
