// `npm run setup [-- --guest]`: installs and builds all that the tests need, with `--guest` also the kernel of the
// guest with RDMA devices.
import { endChildrenOnSignal } from "./setup/command.mjs";
import { reportFailure, setUp } from "./setup/set-up.mjs";
import { prepareGuest } from "./test/rdma.mjs";

endChildrenOnSignal();
try {
  await setUp("test");
  if (process.argv.includes("--guest")) await prepareGuest();
  console.log("[setup] everything is in place");
} catch (error) {
  reportFailure(error);
  process.exitCode = 1;
}
