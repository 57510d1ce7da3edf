// `npm run test:rdma [-- vitest filters]`: boots the guest of test/rdma and runs the provider matrix there on Soft-RoCE and soft-iWARP.
import { endChildrenOnSignal, SetupError } from "./setup/command.mjs";
import { reportFailure, setUp } from "./setup/set-up.mjs";
import { prepareGuest, runInGuest } from "./test/rdma.mjs";

endChildrenOnSignal();

try {
  await setUp("test");
  await prepareGuest();
  const { passed, failed, problems } = await runInGuest(process.argv.slice(2));
  for (const problem of problems) console.log(`FAILED  ${problem}`);
  console.log(`\n${passed} passed, ${failed} failed`);
  process.exitCode = failed === 0 && passed > 0 ? 0 : 1;
} catch (error) {
  reportFailure(error);
  console.log(`\n0 passed, 1 failed${error instanceof SetupError ? `: ${error.message}` : ""}`);
  process.exitCode = 1;
}
