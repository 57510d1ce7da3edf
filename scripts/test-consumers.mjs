// `npm run test:consumers [-- PATH …]`: the package as its users' tools see it: bundlers, compilers, test runners and
// several versions of Node, on the tarball of `npm pack` or the one that CINNABAR_TARBALL names.
import { endChildrenOnSignal, SetupError } from "./setup/command.mjs";
import { reportFailure, setUp } from "./setup/set-up.mjs";
import { runConsumers } from "./test/consumers.mjs";

endChildrenOnSignal();

try {
  await setUp("test");
  const paths = process.argv.slice(2);
  const { passed, failed, problems } = await runConsumers(paths.length > 0 ? { filters: paths } : {});
  for (const problem of problems) console.log(`FAILED  ${problem}`);
  console.log(`\n${passed} passed, ${failed} failed`);
  process.exitCode = failed === 0 && passed > 0 ? 0 : 1;
} catch (error) {
  reportFailure(error);
  console.log(`\n0 passed, 1 failed${error instanceof SetupError ? `: ${error.message}` : ""}`);
  process.exitCode = 1;
}
