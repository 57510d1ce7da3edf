#!/usr/bin/env node
import { run } from "./run.ts";

// Not process.exit: what is still being written to a pipe would be cut off.
process.exitCode = await run(process.argv.slice(2));
