import { mkdirSync, rmSync } from "node:fs";
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

/** What a part takes at most, on the slow kernel too. */
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
 * Runs the tests of a part that have a device in their name. A machine on which the guest does not boot reports that,
 * and passes.
 *
 * @param {{ name: string, filters: readonly string[], without?: readonly string[], settings?: readonly string[] }} part
 * `filters`: paths of vitest's; `without`: globs of files that do not run; `settings` are of the environment, as
 * "NAME=value"
 * @returns {Promise<Outcome>}
 */
export function runPartOnDevices({ name, filters, without = [], settings = [] }) {
  const leftOut = Object.entries(leaveOut(without)).map(([key, value]) => `${key}=${value}`);
  return whereGuestBoots("NO TEST ON RDMA DEVICES", () =>
    vitestInGuest({
      folder: join(reports, name),
      timeoutMs: partMs,
      env: [...environment, ...settings, ...leftOut],
      args: [`--testNamePattern=${onDevices}`, ...filters],
    }),
  );
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
