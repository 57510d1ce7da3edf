import { pathToFileURL } from "node:url";
import { endChildrenOnSignal, root } from "./command.mjs";
import { reportFailure, setUp } from "./set-up.mjs";

/**
 * Sets up what examples need, then becomes one of them.
 *
 * @param {string} name a file below build/examples, without its ending
 * @param {() => Promise<void>} [setUpMore] what it needs beside
 */
export async function runExample(name, setUpMore = async () => {}) {
  const stopWatching = endChildrenOnSignal();
  try {
    await setUp("demo");
    await setUpMore();
  } catch (error) {
    reportFailure(error);
    process.exit(1);
  }
  stopWatching();

  // npm runs scripts in the package's folder; a path on the command line means the folder the person is in.
  if (process.env.INIT_CWD !== undefined) process.chdir(process.env.INIT_CWD);
  await import(new URL(`build/examples/${name}.js`, pathToFileURL(root)).href);
}
