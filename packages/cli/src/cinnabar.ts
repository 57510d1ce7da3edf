#!/usr/bin/env node
import { run, unexpected } from "./run.ts";

// `cinnabar … | head`: the reader is done, so the rest is dropped. 128 and the number of SIGPIPE.
process.stdout.on("error", ({ code, message }: NodeJS.ErrnoException) => {
  if (code !== "EPIPE") process.stderr.write(`cinnabar: standard output: ${message}\n`);
  process.exitCode = code === "EPIPE" ? 141 : 1;
});
process.stderr.on("error", () => {});
// Unhandled rejections come here, too. Node would print the text as it is.
process.on("uncaughtException", (error) => process.exit(unexpected(error)));

// Not process.exit: what is still being written to a pipe would be cut off.
const status = await run(process.argv.slice(2));
process.exitCode ??= status;
