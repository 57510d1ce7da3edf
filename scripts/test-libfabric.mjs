// `npm run test:libfabric [-- [--version N | --suite NAME] [AREA …]]`: the suite on a newer libfabric, that of Debian's
// suite "trixie" unless another is named, or the library that CINNABAR_LIBFABRIC points at. An AREA is "native" or a folder
// of tests; by default all are run, and the result is written to build/reports/.
import { endChildrenOnSignal, SetupError } from "./setup/command.mjs";
import { newerLibfabric } from "./setup/newer-libfabric.mjs";
import { reportFailure, setUp } from "./setup/set-up.mjs";
import { areas, runArea, versionOf, writeResult } from "./test/libfabric.mjs";

endChildrenOnSignal();

try {
  const { suite, chosen } = readArguments(process.argv.slice(2));
  await setUp("test");
  const given = process.env.CINNABAR_LIBFABRIC;
  const { path, from } = given
    ? { path: given, from: "a library of the machine's" }
    : await newerLibfabric(suite);
  const version = await versionOf(path);
  console.log(`\nlibfabric ${version}: ${from}`);

  let passed = 0;
  let failed = 0;
  for (const area of chosen) {
    console.log(`\n━━ ${area}`);
    const outcome = await runArea(area, path, version);
    for (const problem of outcome.problems) console.log(`FAILED  ${problem}`);
    passed += outcome.passed;
    failed += outcome.failed;
  }
  console.log(`\n${writeResult(version, from)}`);
  console.log(`\n${passed} passed, ${failed} failed`);
  process.exitCode = failed === 0 && passed > 0 ? 0 : 1;
} catch (error) {
  reportFailure(error);
  console.log(`\n0 passed, 1 failed${error instanceof SetupError ? `: ${error.message}` : ""}`);
  process.exitCode = 1;
}

/**
 * @param {readonly string[]} args
 * @returns {{ suite: string, chosen: readonly string[] }}
 */
function readArguments(args) {
  let suite = "trixie";
  /** @type {string[]} */
  const chosen = [];
  for (let index = 0; index < args.length; index++) {
    const argument = args[index] ?? "";
    if (argument === "--suite") suite = args[++index] ?? "";
    else if (argument === "--version") suite = suiteOf(args[++index] ?? "");
    else chosen.push(argument);
  }
  if (!/^[a-z]+$/.test(suite))
    throw new SetupError(`--suite takes the name of a Debian suite, not "${suite}"`);
  const unknown = chosen.filter((area) => !areas.includes(area));
  if (unknown.length > 0)
    throw new SetupError(`No such area: ${unknown.join(", ")}`, `There are ${areas.join(", ")}.`);
  return { suite, chosen: chosen.length > 0 ? chosen : areas };
}

/**
 * The suite of Debian that has the source of a version of libfabric.
 *
 * @param {string} version
 * @returns {string}
 */
function suiteOf(version) {
  if (version === "2.1") return "trixie";
  const advice =
    "Debian 12 has 1.17 as its system's library, on which `npm test` runs. For any other version let CINNABAR_LIBFABRIC " +
    "name a library that was built elsewhere.";
  throw new SetupError(`--version ${version}: Debian has the source of libfabric 2.1 only.`, advice);
}
