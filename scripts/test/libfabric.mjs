import { readdirSync } from "node:fs";
import { join } from "node:path";
import { ownLibfabric } from "../package/libfabric.mjs";
import { ask, root, SetupError } from "../setup/command.mjs";
import { runNativeTests } from "./native-tests.mjs";
import { together } from "./outcome.mjs";
import { runVitest } from "./vitest.mjs";

/** @typedef {import("./outcome.mjs").Outcome} Outcome */

/** What never opens a fabric. */
const withoutFabric = ["bench", "docs", "golden", "matrix", "model", "rdma", "scripts", "structure", "types"];

/** mem has no libfabric in it; the tests of it alone come along where no name tells them apart. */
const withoutMem = "--testNamePattern=^(?!.*over '?mem\\b)";

/** Of src/, the folders with tests that open a fabric. */
const withFabric = ["engine", "fabric", "memory", "transfer"];

/** Packages with tests that open a fabric. */
const packages = ["bulk", "cli", "group", "inspect", "lanes", "nvme"];

/** Folders of tests, and first the C++ tests. */
const areas = [
  "native",
  ...withFabric.map((name) => `src/${name}`),
  ...readdirSync(join(root, "test"), { withFileTypes: true })
    .filter((entry) => entry.isDirectory() && !withoutFabric.includes(entry.name))
    .map((entry) => `test/${entry.name}`),
  ...packages.map((name) => `packages/${name}/test`),
];

/** The areas in stages of some minutes each; the last has all that no other has. */
export function areasOfStages() {
  const processes = areas.filter((area) =>
    /^(test\/processes|packages\/(cli|group|lanes|nvme)\/test)$/.test(area),
  );
  const bulk = areas.filter((area) => /^(test\/(bulk|memory|unary)|packages\/bulk\/test)$/.test(area));
  const native = areas.filter((area) => /^(native|src\/.*)$/.test(area));
  const taken = [...native, ...processes, ...bulk];
  return [
    { name: "native", areas: native, quiet: false },
    { name: "processes", areas: processes, quiet: true },
    { name: "bulk", areas: bulk, quiet: false },
    { name: "rest", areas: areas.filter((area) => !taken.includes(area)), quiet: false },
  ];
}

/**
 * Which libfabric the addon finds at a path.
 *
 * @param {string} path
 * @returns {Promise<string>} "2.1"
 */
async function versionOf(path) {
  const script =
    'import("./dist/inspect.js").then((it) => console.log(JSON.stringify(it.providers().libfabric)))';
  const { ok, output } = await ask("env", [`CINNABAR_LIBFABRIC=${path}`, process.execPath, "-e", script]);
  const report = ok ? JSON.parse(output.trim().split("\n").at(-1) ?? "") : undefined;
  if (report?.loaded) return report.version.join(".");
  throw new SetupError(`${path} cannot be used as libfabric: ${report?.tried[0]?.reason ?? output}`);
}

/** The libfabric of the package, or the one that CINNABAR_LIBFABRIC names. */
export async function libraryOfStages() {
  return process.env.CINNABAR_LIBFABRIC || (await ownLibfabric());
}

/**
 * Runs areas on `libraryOfStages`, for a stage of `npm test`.
 *
 * @param {string} name
 * @param {readonly string[]} chosen
 * @returns {Promise<Outcome>}
 */
export async function runAreas(name, chosen) {
  const path = await libraryOfStages();
  console.log(`libfabric ${await versionOf(path)}: ${path}`);
  const env = { CINNABAR_LIBFABRIC: path };
  const folders = chosen.filter((area) => area !== "native").map((area) => `${area}/`);
  const outcomes = [];
  if (chosen.includes("native")) outcomes.push(await runNativeTests("release", env));
  if (folders.length > 0)
    outcomes.push(await runVitest({ name: `libfabric-${name}`, args: [withoutMem, ...folders], env }));
  return together(outcomes);
}
