// `npm run setup`: installs and builds all that the tests need, which is all there is.
import { endChildrenOnSignal } from "./setup/command.mjs";
import { reportFailure, setUp } from "./setup/set-up.mjs";

endChildrenOnSignal();
try {
  await setUp("test");
  console.log("[setup] everything is in place");
} catch (error) {
  reportFailure(error);
  process.exitCode = 1;
}
