import { cpSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { step } from "../setup/command.mjs";
import { installPrograms } from "../setup/programs.mjs";
import { programs } from "./archives.mjs";
import { runCase } from "./cases.mjs";

const what =
  "the addon that cinnabar build makes of the package's sources comes before the package's, over tcp and shm";
const says = [
  /^addon .*\/native\/build\/Release\/cinnabar\.node \(built from the sources\)$/m,
  /^libfabric 2\.1, .* \(bundled with the package\)$/m,
  /^tcp: 16777216 bytes there and back$/m,
  /^shm: 16777216 bytes there and back$/m,
];

/**
 * Builds the addon from the sources in the installed package, as on a processor without a binary in the package, and
 * runs it.
 *
 * @param {import("../package/make.mjs").Archives} archives
 * @returns {Promise<import("../test/outcome.mjs").Outcome>}
 */
export async function testFromSources({ main }) {
  await installPrograms("The addon cannot be built here", { cmake: "cmake", "g++": "g++", make: "make" });
  const work = mkdtempSync(join(tmpdir(), "cinnabar-sources-"));
  try {
    writeFileSync(join(work, "package.json"), "{}");
    const where = ["--prefix", work, "--no-audit", "--no-fund", "--ignore-scripts"];
    await step("install the package", "npm", ["install", ...where, main, "zod"]);
    for (const file of programs) cpSync(file, join(work, basename(file)));
    const cinnabar = "node_modules/.bin/cinnabar";
    await step("cinnabar build", join(work, cinnabar), ["build"]);
    const command = `${cinnabar} info && node first-answers.mjs tcp://127.0.0.1:0 shm://sources-${process.pid}`;
    const enter = ["env", "-C", work, "-u", "CINNABAR_LIBFABRIC", "-u", "CINNABAR_ADDON"];
    const { fault, seconds } = await runCase({ what, command, says }, enter);
    console.log(`${fault === "" ? "ok     " : "FAILED "} ${what} (${seconds.toFixed(1)} s)`);
    const problems = fault === "" ? [] : [`${what}: ${fault}`];
    return { passed: 1 - problems.length, failed: problems.length, problems };
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}
