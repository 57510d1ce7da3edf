import { availableParallelism } from "node:os";
import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

export default defineConfig({
  resolve: {
    // Tests use the package by its name, as users do, and still see the sources instead of the last build.
    alias: [
      {
        find: /^cinnabar\/lanes$/,
        replacement: fileURLToPath(new URL("src/lanes/index.ts", import.meta.url)),
      },
      { find: /^cinnabar$/, replacement: fileURLToPath(new URL("src/index.ts", import.meta.url)) },
    ],
  },
  test: {
    // Processes, not threads: each file gets an addon, a libfabric and exit handlers of its own.
    pool: "forks",
    // Two at least, also on two cores: most tests wait, for other processes, peers and timers.
    maxWorkers: Math.max(2, availableParallelism() - 1),
    include: ["src/**/*.test.ts", "test/**/*.test.ts", "packages/*/src/**/*.test.ts"],
    setupFiles: process.env.CINNABAR_LEAK_CHECK === undefined ? [] : ["scripts/test/leak-check.mjs"],
    exclude: ["**/node_modules/**", "build/**", "**/dist/**", "native/**"],
    // Generous, since two cores may be shared with a compiler, and under sanitizers all is slower still; a hang still ends.
    testTimeout: 60_000,
    hookTimeout: 60_000,
    teardownTimeout: 20_000,
  },
});
