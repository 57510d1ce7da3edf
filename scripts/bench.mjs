// `npm run bench [-- [WORKLOAD…] [OPTION…]]`: sets up, then measures in a process of its own. `--help` lists the
// workloads and options.
import { endChildrenOnSignal, live } from "./setup/command.mjs";
import { reportFailure, setUp } from "./setup/set-up.mjs";

endChildrenOnSignal();
try {
  await setUp("bench");
} catch (error) {
  reportFailure(error);
  process.exit(1);
}
const args = process.argv.slice(2);
process.exitCode = (await live(process.execPath, ["build/bench/main.js", ...args])) === "0" ? 0 : 1;
