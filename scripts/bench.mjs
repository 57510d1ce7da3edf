// `npm run bench [-- [calls|bulk|wheel] [--json FILE] …]`: sets up, then runs a benchmark in a process with nothing else in it.
import { resolve } from "node:path";
import { endChildrenOnSignal, live } from "./setup/command.mjs";
import { reportFailure, setUp } from "./setup/set-up.mjs";

/** By its name on the command line; without a name, the first. */
const programs = new Map([
  ["calls", "build/bench/calls.js"],
  ["bulk", "build/bench/bulk.js"],
  ["wheel", "build/bench/wheel.js"],
]);

const [first, ...rest] = process.argv.slice(2);
const isNamed = first !== undefined && !first.startsWith("-");
const program = programs.get(isNamed ? first : "calls");
if (program === undefined) {
  console.error(`There is no benchmark "${first}"; there are ${[...programs.keys()].join(", ")}`);
  process.exit(1);
}

endChildrenOnSignal();
try {
  await setUp("bench");
} catch (error) {
  reportFailure(error);
  process.exit(1);
}
// npm runs scripts in the package's folder; a file on the command line means the folder the person is in.
const args = (isNamed ? rest : process.argv.slice(2)).map((argument, index, all) => {
  return all[index - 1] === "--json" ? resolve(process.env.INIT_CWD ?? ".", argument) : argument;
});
process.exitCode = (await live(process.execPath, [program, ...args])) === "0" ? 0 : 1;
