import { availableParallelism } from "node:os";
import { fileURLToPath } from "node:url";
import { configDefaults, defineConfig } from "vitest/config";

/**
 * Units that want a process of their own: they load the addon, or put something in the place of what all others use.
 */
const needProcess = [
  "src/fabric/{host,native-port}.test.ts",
  "packages/lanes/test/*.test.ts",
  "src/memory/{pool-slabs,without-addon}.test.ts",
  "src/transfer/checksum.test.ts",
  "src/wire/{codec,decode-value}.test.ts",
];

/** Folders of `test/` whose engines live in the test's own process. */
const inProcess = [
  ...["admission", "balance", "bulk", "flow", "hostile", "lifecycle", "memory", "observe"],
  ...["regression", "retry", "unary"],
];

/** Folders of `test/` that take minutes to start programs: a stage of its own, `programs`. */
const startPrograms = ["bench", "demo", "package", "processes"];

/** Files beside these that start programs: of the documents, the compiler, the command line, processes that write. */
const alsoStartPrograms = [
  "packages/cli/src/cli.test.ts",
  "test/bulk/late-writes.test.ts",
  "test/docs/code.test.ts",
  "test/security/example.test.ts",
  "test/types/types.test.ts",
];

/** What `npm test` has of `test/processes/`: a process that closes, that is sent a signal, that lacks its libraries. */
const smokeOfProcesses = ["close", "missing", "shm-places", "signals"];

const folders = (names: readonly string[]) => names.map((folder) => `test/${folder}/**/*.test.ts`);
const smoke = smokeOfProcesses.map((name) => `test/processes/${name}.test.ts`);

/**
 * Files share a process and what it has imported: their tests leave nothing behind, and importing takes longer than
 * testing. Where leaks are looked for and on devices, whose ports hold much of a small machine, each file has a
 * process.
 */
const inSharedProcesses = {
  isolate: process.env.CINNABAR_LEAK_CHECK !== undefined || process.env.CINNABAR_TEST_VERBS !== undefined,
  restoreMocks: true,
};

/** The source of each entry of the package, and of packages that others import. */
const sourceOfEntry = {
  cinnabar: "src/index.ts",
  "cinnabar/standard": "src/standard.ts",
  "cinnabar/contract": "src/contract.ts",
  "cinnabar/contract/standard": "src/contract/standard.ts",
  "cinnabar/inspect": "src/inspect.ts",
  "cinnabar/options": "src/options.ts",
  "cinnabar/testing": "src/testing.ts",
  "cinnabar/native": "src/native.ts",
  // The command line takes it into the package, so its tests want the source, too.
  "cinnabar-inspect": "packages/inspect/src/index.ts",
  "cinnabar-lanes": "packages/lanes/src/index.ts",
  "cinnabar-bulk": "packages/bulk/src/index.ts",
  "cinnabar-bulk/contract": "packages/bulk/src/contract.ts",
  "cinnabar-bulk/contract/standard": "packages/bulk/src/contract/standard.ts",
  "cinnabar-bulk/standard": "packages/bulk/src/standard.ts",
};

/** Tests that need what `npm test -- consumers` and `npm test -- telemetry` install. */
const notInstalled = [
  ...(process.env.CINNABAR_CONSUMERS === undefined ? ["test/consumers/**"] : []),
  ...(process.env.CINNABAR_PROMETHEUS === undefined ? ["test/telemetry/**"] : []),
];

export default defineConfig({
  resolve: {
    // Tests use the package by its name, as users do, and still see the sources instead of the last build.
    alias: Object.entries(sourceOfEntry).map(([entry, source]) => ({
      find: new RegExp(`^${entry}$`),
      replacement: fileURLToPath(new URL(source, import.meta.url)),
    })),
  },
  test: {
    // Processes, not threads: each gets an addon, a libfabric and exit handlers of its own.
    pool: "forks",
    // Two at least: tests of processes wait for most of their time. A third on two cores can make bounds of time fail.
    maxWorkers: Math.max(2, availableParallelism() - 1),
    globalSetup: ["test/processes/support/bundle-programs.ts"],
    setupFiles: process.env.CINNABAR_LEAK_CHECK === undefined ? [] : ["scripts/test/leak-check.mjs"],
    exclude: ["**/node_modules/**", "build/**", "**/dist/**", "native/**", ...notInstalled],
    projects: [
      {
        extends: true,
        test: {
          name: "units",
          include: ["src/**/*.test.ts", "packages/*/{src,test}/**/*.test.ts"],
          exclude: [...configDefaults.exclude, ...needProcess, ...alsoStartPrograms],
          ...inSharedProcesses,
        },
      },
      {
        extends: true,
        test: {
          name: "behaviour",
          include: folders(inProcess),
          exclude: [...configDefaults.exclude, ...alsoStartPrograms],
          setupFiles: ["test/matrix/nothing-left.ts"],
          ...inSharedProcesses,
        },
      },
      {
        extends: true,
        test: {
          name: "apart",
          include: ["test/**/*.test.ts", ...needProcess],
          exclude: [
            ...configDefaults.exclude,
            ...notInstalled,
            ...folders(inProcess),
            ...folders(startPrograms.filter((folder) => folder !== "processes")),
            `test/processes/!(${smokeOfProcesses.join("|")}).test.ts`,
            ...alsoStartPrograms,
          ],
          setupFiles: ["test/matrix/nothing-left.ts"],
        },
      },
      {
        extends: true,
        test: {
          name: "programs",
          include: [...folders(startPrograms), ...alsoStartPrograms],
          exclude: [...configDefaults.exclude, ...smoke],
          setupFiles: ["test/matrix/nothing-left.ts"],
        },
      },
    ],
    // Generous, since two cores may be shared with compilers, and under sanitizers all is slower still; a hang still
    // ends. Nothing that a test expects depends on these bounds.
    testTimeout: 120_000,
    hookTimeout: 120_000,
    teardownTimeout: 20_000,
    // A second by default, for which a process may wait for a processor where others compile.
    expect: { poll: { timeout: 20_000 } },
  },
});
