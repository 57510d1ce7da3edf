// `npm run test:sanitizers [-- PATH …]`: the C++ tests and the tests that use the addon, or those of the paths, under
// ASan, UBSan and LSan.
import { endChildrenOnSignal } from "./setup/command.mjs";
import { reportFailure, setUp } from "./setup/set-up.mjs";
import { partsUnderSanitizers, runNativeUnderSanitizers, runUnderSanitizers } from "./test/sanitizers.mjs";
import { lastLines, summary } from "./test/summary.mjs";

endChildrenOnSignal();

try {
  await setUp("test");
  const paths = process.argv.slice(2);
  const filters = paths.length > 0 ? paths : partsUnderSanitizers.flatMap((part) => part.filters);
  const results = [];
  for (const [name, run] of /** @type {const} */ ([
    ["native", runNativeUnderSanitizers],
    ["vitest", () => runUnderSanitizers({ name: "all", filters })],
  ])) {
    const started = performance.now();
    const outcome = await run();
    results.push({ name, outcome, seconds: (performance.now() - started) / 1000 });
  }
  const { text, failed } = summary(results);
  console.log(`\n${text}`);
  process.exitCode = failed === 0 ? 0 : 1;
} catch (error) {
  reportFailure(error);
  console.log(`\n${lastLines(0, 1, [error instanceof Error ? error.message : String(error)])}`);
  process.exitCode = 1;
}
