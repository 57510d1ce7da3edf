// `npm run test:fuzz`: ten million mutated messages of each kind that native code reads, under ASan and UBSan.
import { endChildrenOnSignal } from "./setup/command.mjs";
import { reportFailure, setUp } from "./setup/set-up.mjs";
import { fuzzUnderSanitizers } from "./test/sanitizers.mjs";
import { summary } from "./test/summary.mjs";

endChildrenOnSignal();

try {
  await setUp("test");
  const started = performance.now();
  const outcome = await fuzzUnderSanitizers();
  const { text, failed } = summary([
    { name: "fuzz", outcome, seconds: (performance.now() - started) / 1000 },
  ]);
  console.log(`\n${text}`);
  process.exitCode = failed === 0 ? 0 : 1;
} catch (error) {
  reportFailure(error);
  process.exitCode = 1;
}
