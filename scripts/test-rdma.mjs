// `npm run test:rdma [-- vitest filters]`: boots the guest of test/rdma and runs the provider matrix there on Soft-RoCE
// and soft-iWARP. On the libfabric that CINNABAR_LIBFABRIC points at, if it does; what that came to is written to
// build/reports/.
import { endChildrenOnSignal, SetupError } from "./setup/command.mjs";
import { reportFailure, setUp } from "./setup/set-up.mjs";
import { versionOf } from "./test/libfabric.mjs";
import { prepareDevices, runInGuest, writeVerbsResult } from "./test/rdma.mjs";

endChildrenOnSignal();

try {
  await setUp("test");
  await prepareDevices();
  const filters = process.argv.slice(2);
  const outcome = await runInGuest({ filters });
  const { passed, failed, problems } = outcome;
  for (const problem of problems) console.log(`FAILED  ${problem}`);
  const library = process.env.CINNABAR_LIBFABRIC;
  if (library) console.log(`\n${writeVerbsResult(await versionOf(library), filters, outcome)}`);
  console.log(`\n${passed} passed, ${failed} failed`);
  process.exitCode = failed === 0 && passed > 0 ? 0 : 1;
} catch (error) {
  reportFailure(error);
  console.log(`\n0 passed, 1 failed${error instanceof SetupError ? `: ${error.message}` : ""}`);
  process.exitCode = 1;
}
