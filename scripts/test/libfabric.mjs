import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { ask, root, SetupError } from "../setup/command.mjs";
import { newerLibfabric } from "../setup/newer-libfabric.mjs";
import { runNativeTests } from "./native-tests.mjs";
import { runVitest } from "./vitest.mjs";

/** @typedef {import("./outcome.mjs").Outcome} Outcome */

/** What each area came to stays here until the result is written, so that one can be run again by itself. */
const outcomes = join(root, "build", "reports", "libfabric");

/** What never opens a fabric. */
const withoutFabric = ["bench", "docs", "golden", "matrix", "model", "rdma", "scripts", "structure", "types"];

/** mem has no libfabric in it; the tests of it alone come along where no name tells them apart. */
const withoutMem = "--testNamePattern=^(?!.*over '?mem\\b)";

/** Of src/, the folders with tests that open a fabric. */
const withFabric = ["engine", "fabric", "memory", "transfer"];

/** Packages with tests that open a fabric. */
const packages = ["bulk", "cli", "group", "inspect", "lanes", "nvme"];

/** Folders of tests, and first the C++ tests. */
export const areas = [
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
export async function versionOf(path) {
  const script =
    'import("./dist/inspect.js").then((it) => console.log(JSON.stringify(it.providers().libfabric)))';
  const { ok, output } = await ask("env", [`CINNABAR_LIBFABRIC=${path}`, process.execPath, "-e", script]);
  const report = ok ? JSON.parse(output.trim().split("\n").at(-1) ?? "") : undefined;
  if (report?.loaded) return report.version.join(".");
  throw new SetupError(`${path} cannot be used as libfabric: ${report?.tried[0]?.reason ?? output}`);
}

/**
 * Runs one area against a library, and keeps what comes of it.
 *
 * @param {string} area
 * @param {string} path
 * @param {string} version
 * @returns {Promise<Outcome>}
 */
export async function runArea(area, path, version) {
  const env = { CINNABAR_LIBFABRIC: path };
  const outcome =
    area === "native"
      ? await runNativeTests("release", env)
      : await runVitest({
          name: `vitest-libfabric-${version}`,
          args: [withoutMem, `${area}/`],
          env,
        });
  mkdirSync(outcomes, { recursive: true });
  const date = new Date().toISOString().slice(0, 10);
  writeFileSync(outcomeFile(area, version), JSON.stringify({ date, ...outcome }));
  return outcome;
}

/**
 * Runs several areas against Debian's newer libfabric, for a stage of `npm test`; writes no result.
 *
 * @param {string} name
 * @param {readonly string[]} chosen
 * @returns {Promise<Outcome>}
 */
export async function runAreas(name, chosen) {
  const given = process.env.CINNABAR_LIBFABRIC;
  const { path, from } = given ? { path: given, from: given } : await newerLibfabric("trixie");
  console.log(`libfabric ${await versionOf(path)}: ${from}`);
  const env = { CINNABAR_LIBFABRIC: path };
  const folders = chosen.filter((area) => area !== "native");
  const native =
    folders.length < chosen.length
      ? await runNativeTests("release", env)
      : { passed: 0, failed: 0, problems: [] };
  if (folders.length === 0) return native;
  const scripts = await runVitest({
    name: `libfabric-${name}`,
    args: [withoutMem, ...folders.map((folder) => `${folder}/`)],
    env,
  });
  return {
    passed: native.passed + scripts.passed,
    failed: native.failed + scripts.failed,
    problems: [...native.problems, ...scripts.problems],
  };
}

/**
 * Writes what the areas came to when they were last run.
 *
 * @param {string} version
 * @param {string} from
 * @returns {string} the file
 */
export function writeResult(version, from) {
  /** @type {(Outcome & { area: string, date: string })[]} */
  const rows = [];
  /** @type {string[]} */
  const missing = [];
  for (const area of areas) {
    const file = outcomeFile(area, version);
    if (existsSync(file)) rows.push({ area, ...JSON.parse(readFileSync(file, "utf8")) });
    else missing.push(`\`${area}\``);
  }
  /** @param {"passed" | "failed"} what */
  const sum = (what) => rows.reduce((total, row) => total + row[what], 0);
  const problems = rows.flatMap((row) => row.problems.map((problem) => problem.split("\n")[0] ?? ""));
  const text = [
    `# The suite on libfabric ${version}`,
    "",
    `\`npm run test:libfabric\`, on ${from}: **${sum("passed")} passed, ${sum("failed")} failed.**`,
    "",
    "Written by that command. Tests over tcp and shm; those over mem, which has no libfabric in it, are left out.",
    "",
    "| Tests | Passed | Failed | Run on |",
    "| --- | ---: | ---: | --- |",
    ...rows.map(({ area, passed, failed, date }) => `| \`${area}\` | ${passed} | ${failed} | ${date} |`),
    "",
    ...(missing.length === 0 ? [] : [`**Not run: ${missing.join(", ")}.**`, ""]),
    ...(problems.length === 0 ? [] : ["Failures:", "", ...problems.map((problem) => `- ${problem}`), ""]),
  ].join("\n");
  const file = `build/reports/libfabric-${version}.md`;
  mkdirSync(join(root, "build", "reports"), { recursive: true });
  writeFileSync(join(root, file), text);
  return file;
}

/** @param {string} area @param {string} version */
function outcomeFile(area, version) {
  return join(outcomes, `${version}-${area.replace("/", "-")}.json`);
}
