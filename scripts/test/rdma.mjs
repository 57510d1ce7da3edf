import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { ask, live, root, SetupError } from "../setup/command.mjs";
import { readReport } from "./vitest.mjs";

/** @typedef {import("./stages.mjs").Outcome} Outcome */

export const guest = "test/rdma/guest";
const folder = join(root, "build", "reports", "rdma");
const report = join(folder, "vitest.json");

/** The devices of the guest, by the address of one end of their cable. */
export const devices = { rxe: "10.77.1.1", siw: "10.77.2.1" };

/** rxm touches 1024 buffers for each direction as a port opens, and in the guest a page of memory that is new takes its time: some 0.1 ms, on the slow kernel 0.3 ms and more. */
export const smallBuffers = "FI_OFI_RXM_BUFFER_SIZE=4096";

/** See test/matrix/verbs.ts. */
const lent = Object.entries(devices).map(([name, host]) => `${name}=${host}`);
const environment = [`CINNABAR_TEST_VERBS=${lent.join(" ")}`, smallBuffers];

/** Every test over a device has its name in it. */
const onDevices = "verbs on ";

/** A test gets them from one of these. */
const namesDevices =
  /from "[./]*(?:matrix\/)?(?:providers|verbs)\.ts"|from "[./]*(?:processes\/)?fabrics\.ts"/;

/** The files that have tests over devices: to load the others takes the guest minutes. */
const filesOnDevices = () =>
  readdirSync(join(root, "test"), { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".test.ts"))
    .map((name) => `test/${name}`)
    .filter((file) => namesDevices.test(readFileSync(join(root, file), "utf8")))
    .sort();

/** What every run leaves to `npm run test:rdma`: tests that start processes by the dozen, or wait for minutes. test/rdma/ has their short form. */
const longest = "test/processes/";

/** What every run has on the slow kernel, in about five minutes: calls, transfers, memory that is lent, full queues, and the faults that only these devices have. */
const slowPart = [
  "test/bulk/",
  "test/flow/full-queues.test.ts",
  "test/memory/refusal.test.ts",
  "test/observe/queues.test.ts",
  "test/rdma/",
  "test/unary/overflow.test.ts",
  "test/unary/unary.test.ts",
];

/** What a run of everything takes at most, on the slow kernel too. */
const wholeMs = 60 * 60_000;
/** What every run may take, on a machine that builds the kernel first: one that does not do here, and the slow one after it. */
const everyRunMs = 30 * 60_000;
const prepareMs = 12 * 60_000;

/** Builds the guest's kernel where there is none. Takes some minutes, once for a machine. */
export async function prepareGuest() {
  const ending = await live(guest, ["--prepare"]);
  if (ending !== "0")
    throw new SetupError(`${guest} --prepare ended with ${ending}: no test has run on RDMA devices`);
}

/**
 * The part for every run, or why not: a machine that cannot build or boot the guest says so, and passes.
 *
 * @returns {Promise<Outcome>}
 */
export async function runInEveryRun() {
  const started = performance.now();
  let kernel = await ask(guest, ["--ready"]);
  if (!kernel.ok) {
    const ending = await live(guest, ["--prepare"], { timeoutMs: prepareMs });
    if (ending !== "0") return withoutGuest(`the guest's kernel cannot be built here: ${ending}`);
    console.log(`the guest's kernel was built in ${Math.round((performance.now() - started) / 1000)} s`);
    kernel = await ask(guest, ["--ready"]);
  }
  const booted = await live(guest, ["--timeout", "60", "--", "true"], { timeoutMs: 90_000 });
  if (booted !== "0") return withoutGuest(`the guest does not boot on this machine: ${booted}`);
  const quick = kernel.output.trim().endsWith(", quick");
  console.log(
    `the guest: ${kernel.output.trim()}; ${quick ? `all tests on devices but ${longest}` : "a part of the tests on devices"}`,
  );
  const part = quick ? filesOnDevices().filter((file) => !file.startsWith(longest)) : slowPart;
  return runInGuest(part, everyRunMs - (performance.now() - started));
}

/**
 * @param {string} reason
 * @returns {Outcome}
 */
function withoutGuest(reason) {
  const skipped = `NO TEST ON RDMA DEVICES: ${reason}; \`${guest} --console -- true\` says more`;
  console.log(skipped);
  return { passed: 0, failed: 0, problems: [], skipped };
}

/**
 * @param {readonly string[]} filters paths of vitest's; none for every test that has a device in its name
 * @param {number} [timeoutMs]
 * @returns {Promise<Outcome>}
 */
export async function runInGuest(filters, timeoutMs = wholeMs) {
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  const seconds = String(Math.ceil(timeoutMs / 1000));
  const ending = await live(guest, [
    ...["--timeout", seconds, "--out", folder, "--", "env", ...environment],
    ...[process.execPath, "node_modules/vitest/vitest.mjs", "run", `--testNamePattern=${onDevices}`],
    // One processor. What takes a second elsewhere takes ten there.
    ...["--no-file-parallelism", "--testTimeout=180000", "--hookTimeout=180000"],
    ...["--reporter=default", "--reporter=json", `--outputFile.json=${report}`],
    ...(filters.length === 0 ? filesOnDevices() : filters),
  ]);
  if (ending === "125") {
    return {
      passed: 0,
      failed: 1,
      problems: [
        `the guest did not boot on this machine: no test has run on RDMA devices (${guest} --console -- true says more)`,
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
  const file = `docs/results/libfabric-${version}-verbs.md`;
  writeFileSync(join(root, file), text);
  return file;
}
