import { buildAddon, buildTypeScript } from "./builds.mjs";
import { allOf, SetupError } from "./command.mjs";
import { installNpmPackages, npmPackagesAreInstalled } from "./npm-packages.mjs";
import { markRefused } from "./stamp.mjs";
import { planSystemPackages } from "./system-packages.mjs";
import { getProgramsOfTests, missingProgramsOfTests } from "./test-programs.mjs";

/**
 * Brings the checkout to where `purpose` can run, from whatever state it is in, and takes well under a second when
 * nothing is missing. Imports nothing outside Node: it is what a fresh clone runs first.
 *
 * @param {"demo" | "bench" | "test"} purpose
 */
export async function setUp(purpose) {
  checkNode();
  const system = await planSystemPackages(purpose);
  const ofTests = purpose === "test" ? missingProgramsOfTests() : [];
  const plan = [
    ...(system.says === undefined ? [] : [system.says]),
    ...(npmPackagesAreInstalled() ? [] : ["npm packages, in node_modules; no script of theirs is run"]),
    ...(ofTests.length === 0 ? [] : [`programs of tests, unpacked into build/: ${ofTests.join(" ")}`]),
  ];
  if (plan.length > 0) console.log(["[setup] To be installed:", ...plan].join("\n[setup]   "));
  /** @type {readonly string[]} */
  let refused = [];
  const systemPackages = async () => {
    refused = await system.install();
  };
  await allOf([installNpmPackages(), systemPackages()]);
  // The note is kept in node_modules, which npm has just made.
  refused.forEach(markRefused);
  await allOf([
    buildAddon(),
    buildTypeScript(purpose),
    ...(purpose === "test" ? [getProgramsOfTests()] : []),
  ]);
}

/**
 * Prints what went wrong for a reader: a set-up failure without a stack, anything else with one.
 *
 * @param {unknown} error
 */
export function reportFailure(error) {
  if (!(error instanceof SetupError)) {
    console.error(error);
    return;
  }
  console.error(`\n[setup] FAILED  ${error.message}`);
  if (error.advice !== undefined) console.error(`\n${error.advice}`);
}

function checkNode() {
  const [major = 0, minor = 0] = process.versions.node.split(".").map(Number);
  if (major > 20 || (major === 20 && minor >= 19)) return;
  throw new SetupError(
    `Node ${process.versions.node} is too old: Cinnabar needs 20.19 or later.`,
    "See https://nodejs.org/en/download",
  );
}
