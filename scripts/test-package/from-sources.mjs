import { join } from "node:path";
import { step } from "../setup/command.mjs";
import { installPrograms } from "../setup/programs.mjs";
import { withInstalled } from "./archives.mjs";
import { Checks } from "./cases.mjs";

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
  const checks = new Checks();
  await withInstalled(main, async (folder) => {
    const cinnabar = "node_modules/.bin/cinnabar";
    await step("cinnabar build", join(folder, cinnabar), ["build"]);
    const command = `${cinnabar} info && node first-answers.mjs tcp://127.0.0.1:0 shm://sources-${process.pid}`;
    const enter = ["env", "-C", folder, "-u", "CINNABAR_LIBFABRIC", "-u", "CINNABAR_ADDON"];
    await checks.run(what, { what, command, says }, enter);
  });
  return checks;
}
