import { ask, live, root } from "../setup/command.mjs";
import { findClangFormat } from "../setup/system-packages.mjs";
import { getPrometheus } from "../setup/test-programs.mjs";
import { runConsumers } from "./consumers.mjs";
import {
  fuzzDisks,
  installClientsOfDisks,
  prepareKernelOfDisks,
  prepareMirrorOfKernel,
  runClientsOfDisks,
  runDisksOfKernel,
  runMirrorOfKernel,
} from "./disks.mjs";
import { freshMachines, prepareFreshMachine, tryFreshMachine } from "./fresh-machines.mjs";
import { areasOfStages, libraryOfStages, runAreas } from "./libfabric.mjs";
import { nativeSourceFiles, runNativeTests, runUnderThreadSanitizer } from "./native-tests.mjs";
import { preparePackage, testPackage } from "./package.mjs";
import { checkProse } from "./prose.mjs";
import {
  kernelOfGuest,
  partsOnDevices,
  prepareDevices,
  runPartOnDevices,
  sealedOnDevices,
  smokeOnDevices,
} from "./rdma.mjs";
import {
  fuzzUnderSanitizers,
  partsUnderSanitizers,
  runNativeUnderSanitizers,
  runUnderSanitizers,
  smokeUnderSanitizers,
} from "./sanitizers.mjs";
import { runSite } from "./site.mjs";
import { runVitest } from "./vitest.mjs";

/** @typedef {import("./outcome.mjs").Outcome} Outcome */

/**
 * @typedef {object} Stage
 * @property {string} name of groups with its part behind a dash, as "rdma-bulk"
 * @property {"always" | "commit" | "often" | "alone"} when `npm test` without names runs "always". Continuous integration
 * adds every "commit", in the short form too, and some of "often". "alone" needs a machine that does nothing else, or
 * takes many minutes. Tests take their long form in "often" and "alone"
 * @property {string} what
 * @property {() => Promise<unknown>} [prepare] makes what the stage needs; where it cannot, the stage is skipped
 * @property {string} [lack] what to say then
 * @property {boolean} [takesWords] `run` takes the test files, folders and options that were given
 * @property {(args: readonly string[]) => Promise<Outcome>} run
 */

/** Tests with a fabric that test/matrix/over-net.ts chooses. */
const overNet = [
  ...["test/conformance/", "test/hostile/", "test/processes/", "test/security/", "test/bulk/late-writes"],
  ...["test/regression/draining-peer-that-dies", "test/regression/name-of-a-small-incarnation"],
  "packages/lanes/test/",
];

const onGuest = { prepare: prepareDevices, lack: "NO TEST ON RDMA DEVICES" };

/** Every stage, in the order in which they run. @type {readonly Stage[]} */
export const stages = [
  {
    name: "biome",
    when: "always",
    what: "format, lint and import order",
    run: () => asOne("node_modules/.bin/biome", ["ci", "--error-on-warnings"]),
  },
  { name: "clang-format", when: "always", what: "format of the C++ sources", run: checkNativeFormat },
  {
    name: "prose",
    when: "always",
    what: "forms in comments and documents that a reader has to read twice",
    run: checkProse,
  },
  {
    name: "types-7",
    when: "always",
    what: "types under TypeScript 7",
    run: () => asOne(process.execPath, ["node_modules/typescript-7/bin/tsc"]),
  },
  {
    name: "native",
    when: "always",
    what: "C++ tests, release build",
    takesWords: true,
    run: (args) => runNativeTests("release", {}, args),
  },
  {
    name: "vitest",
    when: "always",
    what: "TypeScript tests, but for most of those that start programs",
    takesWords: true,
    run: (args) => runVitest({ args: args.length > 0 ? args : ["--project=!programs"] }),
  },
  {
    name: "rdma-smoke",
    when: "always",
    what: "a smoke of the tests on RDMA devices, in the guest",
    prepare: async () => {
      if ((await kernelOfGuest()) === undefined)
        throw new Error("`npm run setup -- --guest` builds the guest's kernel once, in some four minutes");
      await prepareDevices();
    },
    lack: onGuest.lack,
    takesWords: true,
    run: (args) => runPartOnDevices({ name: "smoke", filters: args.length > 0 ? args : smokeOnDevices }),
  },
  {
    name: "programs",
    when: "commit",
    what: "TypeScript tests that start programs: processes, the demo, the package, the benchmarks",
    run: () => runVitest({ name: "programs", args: ["--project=programs"] }),
  },
  {
    name: "sanitizers-smoke",
    when: "commit",
    what: "a smoke of the tests under ASan, UBSan and LSan",
    takesWords: true,
    run: (args) =>
      runUnderSanitizers({ name: "smoke", filters: args.length > 0 ? args : smokeUnderSanitizers.filters }),
  },
  {
    name: "types-6",
    when: "often",
    what: "types under TypeScript 6, as some users check theirs",
    run: () => asOne(process.execPath, ["node_modules/typescript/bin/tsc"]),
  },
  {
    name: "native-debug",
    when: "often",
    what: "C++ tests, debug build, every file compiled by itself",
    takesWords: true,
    run: (args) => runNativeTests("debug", {}, args),
  },
  {
    name: "long-calls",
    when: "often",
    what: "TypeScript tests that have a long form, but for those of processes and the model",
    run: () =>
      runVitest({
        name: "long-calls",
        args: ["test/"],
        without: [
          "packages/{cli,group,nvme,otel}/**",
          "packages/lanes/**/*.process.test.ts",
          "test/{demo,docs,golden,model,package,processes,scripts,structure}/**",
        ],
      }),
  },
  {
    name: "long-processes",
    when: "alone",
    what: "TypeScript tests of several processes and of the model, in their long form",
    run: () =>
      runVitest({
        name: "long-processes",
        args: ["test/processes/", "test/model/", "packages/"],
        without: ["packages/**/!(*.process).test.ts"],
      }),
  },
  {
    name: "sealed",
    when: "often",
    what: "TypeScript tests of conformance, calls and bulk over sealed sessions",
    run: () =>
      runVitest({
        name: "sealed",
        args: [
          ...["bulk", "conformance", "memory", "middleware", "streams", "unary"].map(
            (name) => `test/${name}/`,
          ),
          ...["bulk", "inspect"].map((name) => `packages/${name}/test/`),
        ],
        env: { CINNABAR_TEST_SECURED: "1" },
      }),
  },
  {
    name: "net",
    when: "often",
    what: "TypeScript tests of hostile peers, security and processes over Node's sockets, in their short form",
    run: () =>
      runVitest({
        name: "net",
        args: overNet,
        without: ["test/processes/{forbidden,long-run,shm-places,tcp-}*"],
        env: { CINNABAR_TEST_NET: "1", CINNABAR_LONG: "" },
      }),
  },
  {
    name: "net-fuzz",
    when: "alone",
    what: "units of net in their long form: ten million mutated frames",
    run: () => runVitest({ name: "net-fuzz", args: ["src/fabric/net/"], timeoutMs: 3_600_000 }),
  },
  ...partsOnDevices.map(
    ({ quiet, ...part }) =>
      /** @type {Stage} */ ({
        name: `rdma-${part.name}`,
        when: quiet ? "alone" : "often",
        what: `tests on RDMA devices, in the guest: ${part.filters.join(" ")}`,
        ...onGuest,
        run: () => runPartOnDevices(part),
      }),
  ),
  {
    name: "rdma-sealed",
    when: "often",
    what: "tests on RDMA devices over sealed sessions, in the guest",
    ...onGuest,
    run: () =>
      runPartOnDevices({
        name: "sealed",
        filters: sealedOnDevices,
        settings: ["CINNABAR_TEST_SECURED=1"],
      }),
  },
  {
    name: "sanitizers-native",
    when: "often",
    what: "C++ tests under ASan, UBSan and LSan",
    run: runNativeUnderSanitizers,
  },
  ...partsUnderSanitizers.map(
    ({ quiet = false, ...part }) =>
      /** @type {Stage} */ ({
        name: `sanitizers-${part.name}`,
        when: quiet ? "alone" : "often",
        what: `tests that use the addon under ASan, UBSan and LSan: ${part.filters.join(" ")}`,
        run: () => runUnderSanitizers(part),
      }),
  ),
  {
    name: "fuzz",
    when: "alone",
    what: "ten million mutated messages of each kind that native code reads, under ASan and UBSan",
    run: fuzzUnderSanitizers,
  },
  {
    name: "disks-clients",
    when: "often",
    what: "disks of packages/nvme under clients of others: libnbd and QEMU, which it installs",
    prepare: installClientsOfDisks,
    lack: "NO TEST WITH CLIENTS OF DISKS",
    run: runClientsOfDisks,
  },
  {
    name: "disks-kernel",
    when: "alone",
    what: "disks of packages/nvme under Linux, in the guest: its hosts of NVMe/TCP and NVMe/RDMA, its target, its client of NBD",
    prepare: prepareKernelOfDisks,
    lack: "NO TEST WITH LINUX AS HOST OF DISKS",
    takesWords: true,
    run: runDisksOfKernel,
  },
  {
    name: "disks-mirror",
    when: "often",
    what: "a disk on two machines: md RAID1 of Linux over servers of packages/nvme that are killed, in the guest",
    prepare: prepareMirrorOfKernel,
    lack: "NO TEST OF A MIRROR BY LINUX",
    run: runMirrorOfKernel,
  },
  {
    name: "disks-fuzz",
    when: "alone",
    what: "ten million mutated messages of each protocol of packages/nvme",
    run: fuzzDisks,
  },
  { name: "tsan", when: "often", what: "C++ tests under ThreadSanitizer", run: runUnderThreadSanitizer },
  {
    name: "site",
    when: "often",
    what: "the site of the documentation: built, its links checked, looked at in a browser; the back end used in one",
    takesWords: true,
    run: runSite,
  },
  ...areasOfStages().map(
    ({ name, areas, quiet }) =>
      /** @type {Stage} */ ({
        name: `libfabric-${name}`,
        when: quiet ? "alone" : "often",
        what: `tests on the libfabric of the package: ${areas.join(" ")}`,
        prepare: libraryOfStages,
        lack: "NO TEST ON THE LIBFABRIC OF THE PACKAGE",
        run: () => runAreas(name, areas),
      }),
  ),
  {
    name: "telemetry",
    when: "often",
    what: "Debian's Prometheus scrapes servers; rules and dashboard are asked of it",
    prepare: getPrometheus,
    lack: "NO TEST WITH PROMETHEUS",
    run: () => runVitest({ name: "telemetry", args: ["test/telemetry/"], env: { CINNABAR_PROMETHEUS: "1" } }),
  },
  {
    name: "consumers",
    when: "often",
    what: "the package under bundlers, compilers, test runners and versions of Node; installs 1.3 GB of tools",
    takesWords: true,
    run: (args) => runConsumers(args.length > 0 ? { filters: args } : {}),
  },
  ...freshMachines.map(
    (machine) =>
      /** @type {Stage} */ ({
        name: `fresh-${machine.name}`,
        when: "often",
        what: `the demo on a bare ${machine.suite} with Node ${machine.node}, by ${machine.who}`,
        prepare: () => prepareFreshMachine(machine),
        lack: "NO TEST ON A FRESH MACHINE",
        run: () => tryFreshMachine(machine),
      }),
  ),
  {
    name: "package",
    when: "alone",
    what: "the package, installed in bare roots without compiler and libfabric with each Node, and on RDMA devices",
    prepare: preparePackage,
    lack: "NO TEST OF THE INSTALLED PACKAGE",
    run: testPackage,
  },
];

/**
 * The stages of a word: the one of that name, or else those of a group, as "rdma" for "rdma-bulk". A smoke belongs to
 * no group, since the group has its tests.
 *
 * @param {string} word
 * @returns {readonly Stage[]}
 */
export function stagesOf(word) {
  const own = stages.filter(({ name }) => name === word);
  if (own.length > 0) return own;
  return stages.filter(
    ({ name }) => !name.endsWith("-smoke") && (word === "all" || name.startsWith(`${word}-`)),
  );
}

/**
 * A command that counts as one test.
 *
 * @param {string} command
 * @param {readonly string[]} args
 * @returns {Promise<Outcome>}
 */
async function asOne(command, args) {
  const ending = await live(command, args);
  if (ending === "0") return { passed: 1, failed: 0, problems: [] };
  return { passed: 0, failed: 1, problems: [`${[command, ...args].join(" ")} ended with ${ending}`] };
}

/** @returns {Promise<Outcome>} */
async function checkNativeFormat() {
  const clangFormat = await findClangFormat();
  if (clangFormat === undefined) {
    return { passed: 0, failed: 0, problems: [], skipped: "clang-format 14 is not on this machine" };
  }
  const { output } = await ask(clangFormat, ["--version"]);
  console.log(`${output.trim()} in ${root}`);
  return asOne(clangFormat, ["--dry-run", "-Werror", ...nativeSourceFiles()]);
}
