import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { buildNative } from "../setup/builds.mjs";
import { ask, live, root, SetupError } from "../setup/command.mjs";
import { readReport } from "./vitest.mjs";

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

/** A test gets devices from one of these modules; those of test/rdma/ always need devices. */
const namesDevices =
  /from "[./]*(?:matrix\/)?(?:providers|verbs)\.ts"|from "[./]*(?:processes\/)?(?:support\/)?fabrics\.ts"/;

/** The files that have tests over devices: to load the others takes the guest minutes. */
export const filesOnDevices = () =>
  readdirSync(join(root, "test"), { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".test.ts"))
    .map((name) => `test/${name}`)
    .filter(
      (file) => file.startsWith("test/rdma/") || namesDevices.test(readFileSync(join(root, file), "utf8")),
    )
    .sort();

/** What every run has: peers that find each other, connections that end, transfers. */
export const smokeOnDevices = ["test/rdma/peers", "test/rdma/connections", "test/bulk/transfer"];

/**
 * The parts of a whole run, each some minutes. A file belongs to the first part that has it, and else to the last.
 * `quiet`: processes that are killed, stopped and timed, on the one processor of the guest. Their bounds of time hold
 * only on an idle machine.
 */
const parts = [
  { name: "faults", has: /^test\/rdma\// },
  { name: "bulk", has: /^test\/bulk\// },
  { name: "memory", has: /^test\/memory\// },
  { name: "calls", has: /^test\/unary\// },
  { name: "lanes", quiet: true, has: /^test\/(balance|processes)\/lanes/ },
  { name: "deaths", quiet: true, has: /^test\/processes\/(death|stall|pause|teardown)/ },
  { name: "chaos", quiet: true, has: /^test\/processes\/(chaos|pressure|long-run)/ },
  { name: "processes", quiet: true, has: /^test\/processes\// },
  { name: "rest", has: /^/ },
];

/** @returns {{ name: string, quiet: boolean, files: readonly string[] }[]} */
export function partsOnDevices() {
  const files = filesOnDevices();
  return parts.map(({ name, quiet = false }, index) => ({
    name,
    quiet,
    files: files.filter((file) => parts.findIndex(({ has }) => has.test(file)) === index),
  }));
}

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
 * @param {string} name
 * @param {readonly string[]} files
 * @param {readonly string[]} [settings] of the environment, as "NAME=value"
 * @returns {Promise<Outcome>}
 */
export function runPartOnDevices(name, files, settings = []) {
  return whereGuestBoots("NO TEST ON RDMA DEVICES", () => runInGuest(files, name, partMs, settings));
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
 * @param {readonly string[]} filters paths of vitest's; none for every test that has a device in its name
 * @param {string} [name] of the report's folder
 * @param {number} [timeoutMs]
 * @param {readonly string[]} [settings] of the environment, as "NAME=value"
 * @returns {Promise<Outcome>}
 */
export function runInGuest(filters, name = "all", timeoutMs = wholeMs, settings = []) {
  const files = filters.length === 0 ? filesOnDevices() : filters;
  const args = [`--testNamePattern=${onDevices}`, ...files];
  return vitestInGuest({ folder: join(reports, name), timeoutMs, env: [...environment, ...settings], args });
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
 * @param {readonly string[]} filters as of `runInGuest`
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
