// Starts a process as benchmarks do: `parent.js outcomes` prints as JSON what became of what was asked of it;
// `parent.js wait` prints its pid and goes on until it is told to end.
import { Child, endChildrenOnSignal } from "../../../bench/suite/child.ts";
import type { Mortal } from "./mortal.ts";

endChildrenOnSignal();
const mortal = new URL("./mortal.js", import.meta.url);
const child = await Child.start<Mortal>("the mortal", mortal, ["hello"]);
if (process.argv[2] === "wait") {
  console.log(child.pid);
} else {
  const outcome = (asked: Promise<unknown>) =>
    asked.then(
      (value) => ({ value }),
      (error: Error) => ({ error: error.message.split("\n")[0] }),
    );
  const outcomes = {
    echo: await outcome(child.ask("echo", Number.NaN)),
    fail: await outcome(child.ask("fail")),
    die: await outcome(child.ask("die")),
    afterwards: await outcome(child.ask("echo", 1)),
    missing: await outcome(Child.start("the missing", new URL("./not-there.js", import.meta.url))),
  };
  await child.end();
  console.log(JSON.stringify(outcomes));
}
