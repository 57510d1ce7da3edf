// `npm run demo [-- [--compare] folder]`: sets up what the demo needs, then becomes the demo.
import { pathToFileURL } from "node:url";
import { endChildrenOnSignal, root } from "./setup/command.mjs";
import { reportFailure, setUp } from "./setup/set-up.mjs";

const stopWatching = endChildrenOnSignal();
try {
  await setUp("demo");
} catch (error) {
  reportFailure(error);
  process.exit(1);
}
stopWatching();

// npm runs scripts in the package's folder; a path on the command line means the folder the person is in.
if (process.env.INIT_CWD !== undefined) process.chdir(process.env.INIT_CWD);
await import(new URL("build/examples/demo/main.js", pathToFileURL(root)).href);
