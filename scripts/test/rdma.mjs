import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { buildNative } from "../setup/builds.mjs";
import { ask, live, root, SetupError } from "../setup/command.mjs";
import { leaveOut, readReport } from "./vitest.mjs";

/** @typedef {import("./outcome.mjs").Outcome} Outcome */

export const guest = "test/rdma/guest";
const reports = join(root, "build", "reports", "rdma");

/** The devices of the guest, by the address of one end of their cable. */
export const devices = { rxe: "10.77.1.1", siw: "10.77.2.1" };

/**
 * rxm touches 1024 buffers for each direction as a port opens, and in the guest a page of memory that is new takes its
 * time: some 0.1 ms, on the slow kernel 0.3 ms and more.
 */
export const smallBuffers = "FI_OFI_RXM_BUFFER_SIZE=4096";

/** See test/matrix/verbs.ts. */
const lent = Object.entries(devices).map(([name, host]) => `${name}=${host}`);
const environment = [`CINNABAR_TEST_VERBS=${lent.join(" ")}`, smallBuffers];

/** Every test over a device has its name in it. */
const onDevices = "verbs on ";

/** What has no test over a device: to load it takes the guest minutes. */
const withoutDevices = [
  "packages/{cli,group,nvme,otel}/**",
  "test/{bench,demo,docs,fake-timers,golden,model,package,scripts,structure,types}/**",
  "test/hostile/!(thrown)*",
  "test/security/!(authorization)*",
];

/** What every run has: peers that find each other, connections that end, transfers. */
export const smokeOnDevices = ["test/rdma/peers", "test/rdma/connections", "test/bulk/transfer"];

const deaths = ["death", "stall", "pause", "teardown"];
const chaos = ["chaos", "pressure", "long-run"];

/**
 * The parts of a whole run, each some minutes: filters of vitest and globs of what they leave out. `quiet`: processes
 * that are killed, stopped and timed, on the one processor of the guest. Their bounds of time hold only on an idle
 * machine.
 *
 * @type {readonly { name: string, quiet?: boolean, filters: readonly string[], without?: readonly string[] }[]}
 */
export const partsOnDevices = [
  { name: "faults", filters: ["test/rdma/"] },
  { name: "bulk", filters: ["test/bulk/"] },
  { name: "memory", filters: ["test/memory/", "packages/bulk/test/"] },
  { name: "calls", filters: ["test/unary/"] },
  { name: "lanes", quiet: true, filters: ["packages/lanes/test/lanes"] },
  { name: "deaths", quiet: true, filters: deaths.map((name) => `test/processes/${name}.`) },
  { name: "chaos", quiet: true, filters: chaos.map((name) => `test/processes/${name}.`) },
  {
    name: "processes",
    quiet: true,
    filters: ["test/processes/"],
    without: [`test/processes/{${[...deaths, ...chaos]}}.*`],
  },
  {
    name: "rest",
    filters: ["test/"],
    without: [...withoutDevices, "test/{rdma,bulk,memory,unary,processes}/**", "packages/{bulk,lanes}/**"],
  },
];

/** Calls, and bodies that are pulled, once more over sealed sessions (test/matrix/secured.ts). */
export const sealedOnDevices = ["test/unary/unary", "test/unary/overflow", "test/bulk/transfer"];

/** What a run of everything takes at most, on the slow kernel too. */
const wholeMs = 90 * 60_000;
const partMs = 25 * 60_000;

/** Whether a kernel is there, and which. @returns {Promise<string | undefined>} */
export async function kernelOfGuest() {
  const { ok, output } = await ask(guest, ["--ready"]);
  return ok ? output.trim() : undefined;
}

/** Builds the guest's kernel if it is not built yet. Takes some minutes, once for a machine. */
export async function prepareGuest() {
  const ending = await live(guest, ["--prepare"]);
  if (ending !== "0")
    throw new SetupError(`${guest} --prepare ended with ${ending}: no test has run on RDMA devices`);
}

/** Also builds the program of the C++ tests: some run on devices, and it plays peers that attack. */
export async function prepareDevices() {
  await buildNative("release", "cinnabar_native_tests");
  await prepareGuest();
}

/**
 * A part of the tests on devices. A machine on which the guest does not boot reports that, and passes.
 *
 * @param {{ name: string, filters: readonly string[], without?: readonly string[], settings?: readonly string[] }} part
 * `settings` are of the environment, as "NAME=value"
 * @returns {Promise<Outcome>}
 */
export function runPartOnDevices(part) {
  return whereGuestBoots("NO TEST ON RDMA DEVICES", () => runInGuest({ ...part, timeoutMs: partMs }));
}

/**
 * Runs tests. A machine on which the guest does not boot reports that, and passes.
 *
 * @param {string} lack
 * @param {() => Promise<Outcome>} run
 * @returns {Promise<Outcome>}
 */
export async function whereGuestBoots(lack, run) {
  const booted = await live(guest, ["--timeout", "60", "--", "true"], { timeoutMs: 90_000 });
  if (booted !== "0") {
    const skipped = `${lack}: the guest does not boot on this machine (${booted}); \`${guest} --console -- true\` says more`;
    return { passed: 0, failed: 0, problems: [], skipped };
  }
  console.log(`the guest: ${await kernelOfGuest()}`);
  return run();
}

/**
 * Runs the tests that have a device in their name. Without filters: all of them.
 *
 * @param {object} options
 * @param {readonly string[]} options.filters paths of vitest's
 * @param {readonly string[]} [options.without] globs of files that do not run
 * @param {string} [options.name] of the report's folder
 * @param {number} [options.timeoutMs]
 * @param {readonly string[]} [options.settings] of the environment, as "NAME=value"
 * @returns {Promise<Outcome>}
 */
export function runInGuest({ filters, without, name = "all", timeoutMs = wholeMs, settings = [] }) {
  const leftOut = leaveOut(without ?? (filters.length === 0 ? withoutDevices : []));
  return vitestInGuest({
    folder: join(reports, name),
    timeoutMs,
    env: [...environment, ...settings, ...Object.entries(leftOut).map(([key, value]) => `${key}=${value}`)],
    args: [`--testNamePattern=${onDevices}`, ...filters],
  });
}

/**
 * Runs vitest in the guest.
 *
 * @param {object} options
 * @param {string} options.folder for the report, and for what crashes leave
 * @param {number} options.timeoutMs
 * @param {readonly string[]} options.env as "NAME=value"
 * @param {readonly string[]} options.args test files, folders and options of vitest
 * @returns {Promise<Outcome>}
 */
export async function vitestInGuest({ folder, timeoutMs, env, args }) {
  const report = join(folder, "vitest.json");
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  const seconds = String(Math.ceil(timeoutMs / 1000));
  const ending = await live(guest, [
    ...["--timeout", seconds, "--out", folder, "--", "env", ...env],
    ...[process.execPath, "node_modules/vitest/vitest.mjs", "run"],
    // One processor. What takes a second elsewhere takes ten there.
    ...["--no-file-parallelism", "--testTimeout=180000", "--hookTimeout=180000"],
    ...["--reporter=default", "--reporter=json", `--outputFile.json=${report}`, ...args],
  ]);
  if (ending === "125") {
    return {
      passed: 0,
      failed: 1,
      problems: [
        `the guest did not boot on this machine: none of its tests has run (${guest} --console -- true says more)`,
      ],
    };
  }
  return readReport(report, ending);
}

/**
 * Writes what a run on another libfabric came to.
 *
 * @param {string} version of libfabric, "2.1"
 * @param {readonly string[]} filters of `runInGuest`
 * @param {Outcome} outcome
 * @returns {string} the file
 */
export function writeVerbsResult(version, filters, { passed, failed, problems }) {
  const text = [
    `# verbs on libfabric ${version}`,
    "",
    `\`CINNABAR_LIBFABRIC=… npm run test:rdma\`, in the guest with Soft-RoCE and soft-iWARP: **${passed} passed, ${failed} failed.**`,
    "",
    `Written by that command on ${new Date().toISOString().slice(0, 10)}. ${filters.length === 0 ? "All tests over a device." : "Of the tests over a device these:"}`,
    "",
    ...filters.map((filter) => `- \`${filter}\``),
    ...(filters.length === 0 ? [] : [""]),
    ...(problems.length === 0
      ? []
      : ["Failures:", "", ...problems.map((problem) => `- ${problem.split("\n")[0]}`), ""]),
  ].join("\n");
  const file = `build/reports/libfabric-${version}-verbs.md`;
  mkdirSync(join(root, "build", "reports"), { recursive: true });
  writeFileSync(join(root, file), text);
  return file;
}
