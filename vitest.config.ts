import { availableParallelism } from "node:os";
import { configDefaults, defineConfig } from "vitest/config";

/** Tests of that suffix. CONTRIBUTING says what each suffix means. */
const suffixed = (suffix: string) => `{src,test,packages}/**/*.${suffix}.test.ts`;

/** Without a device and a kernel of its own, as in the guest of `test/rdma`, no test of these files can run. */
const hasGuest =
  process.env.CINNABAR_TEST_VERBS !== undefined || process.env.CINNABAR_KERNEL_DISKS !== undefined;

/**
 * Files share a process and what it has imported: their tests leave nothing behind, and importing takes longer than
 * testing. Where leaks are looked for and on devices, whose ports hold much of a small machine, each file has a
 * process.
 */
const inSharedProcesses = {
  exclude: [...configDefaults.exclude, ...["apart", "process", "device"].map(suffixed)],
  isolate: process.env.CINNABAR_LEAK_CHECK !== undefined || process.env.CINNABAR_TEST_VERBS !== undefined,
  restoreMocks: true,
};

/** What engines leave behind fails the test. */
const leavesNothing = { setupFiles: ["test/matrix/nothing-left.ts"] };

/** Tests use packages by their names, as users do, and still see the sources instead of the last build. */
const conditions = ["cinnabar:source", "node"];

/** Tests that need what `npm test -- consumers` and `npm test -- telemetry` install. */
const notInstalled = [
  ...(process.env.CINNABAR_CONSUMERS === undefined ? ["test/consumers/**"] : []),
  ...(process.env.CINNABAR_PROMETHEUS === undefined ? ["test/telemetry/**"] : []),
];

/** Globs that a stage leaves out: projects know nothing of the option `--exclude`. */
const leftOut = process.env.CINNABAR_LEFT_OUT?.split(" ") ?? [];

export default defineConfig({
  resolve: { conditions },
  ssr: { resolve: { conditions } },
  test: {
    // Processes, not threads: each gets an addon, a libfabric and exit handlers of its own.
    pool: "forks",
    // Two at least: tests of processes wait for most of their time. A third on two cores can make bounds of time fail.
    maxWorkers: Math.max(2, availableParallelism() - 1),
    globalSetup: ["test/processes/support/bundle-programs.ts"],
    setupFiles: process.env.CINNABAR_LEAK_CHECK === undefined ? [] : ["scripts/test/leak-check.mjs"],
    exclude: ["**/node_modules/**", "build/**", "**/dist/**", "native/**", ...notInstalled, ...leftOut],
    projects: [
      {
        extends: true,
        test: { name: "units", include: ["{src,packages/*/src}/**/*.test.ts"], ...inSharedProcesses },
      },
      {
        extends: true,
        test: {
          name: "behaviour",
          include: ["{test,packages/*/test}/**/*.test.ts"],
          ...leavesNothing,
          ...inSharedProcesses,
        },
      },
      {
        extends: true,
        test: {
          name: "apart",
          include: [suffixed("apart"), ...(hasGuest ? [suffixed("device")] : [])],
          ...leavesNothing,
        },
      },
      {
        extends: true,
        test: { name: "programs", include: [suffixed("process")], ...leavesNothing },
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
