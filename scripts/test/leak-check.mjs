// A vitest setup file for the run under sanitizers: looks for leaks at the end of every test file, in the process that
// ran it.
import { createRequire } from "node:module";
import { afterAll } from "vitest";

const { check } = createRequire(import.meta.url)(process.env.CINNABAR_LEAK_CHECK ?? "");

/** The check stops every thread and walks all memory: some seconds, on a busy machine a minute and more. */
const limitMs = 300_000;

afterAll(() => {
  check(); // what it finds goes into the report, where it is judged
}, limitMs);
