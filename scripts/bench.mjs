// `npm run bench [-- --json FILE]`: sets up, then runs the benchmark in a process with nothing else in it.
import { resolve } from "node:path";
import { endChildrenOnSignal, live } from "./setup/command.mjs";
import { reportFailure, setUp } from "./setup/set-up.mjs";

endChildrenOnSignal();
try {
  await setUp("bench");
} catch (error) {
  reportFailure(error);
  process.exit(1);
}
// npm runs scripts in the package's folder; a file on the command line means the folder the person is in.
const args = process.argv.slice(2).map((argument, index, all) => {
  return all[index - 1] === "--json" ? resolve(process.env.INIT_CWD ?? ".", argument) : argument;
});
process.exitCode = (await live(process.execPath, ["build/bench/first.js", ...args])) === "0" ? 0 : 1;
