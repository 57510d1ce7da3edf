import { join } from "node:path";
import { arch } from "node:process";
import { root } from "../setup/command.mjs";
import { devices, guest, kernelOfGuest, smallBuffers } from "../test/rdma.mjs";
import { withInstalled } from "./archives.mjs";
import { Checks } from "./cases.mjs";

const addresses = Object.values(devices).map((host) => `verbs://${host}:0`);
const bundled = `native/linux-${arch}-glibc`;

/** Libraries of rdma-core, as they lie in the guest's root: what a case removes is there again for the next. */
const libraries = (/** @type {string} */ name) =>
  `rm -f $(find /usr/lib /lib -name '${name}*') && rm -f /etc/ld.so.cache`;

/** @param {RegExp} reason why verbs cannot be used, while tcp can */
const withoutVerbs = (reason) => [
  new RegExp(`libfabric 2\\.1, /.*/${bundled}/libfabric\\.so\\.1 \\(bundled with the package\\)`),
  /^verbs:\/\/ +\S+ +no +/m,
  reason,
  /^tcp: Hello, tcp$/m,
];

/** @type {readonly import("./cases.mjs").Case[]} */
const cases = [
  {
    what: "the bundled libfabric finds Soft-RoCE and soft-iWARP by the system's rdma-core",
    command: "npx --no-install cinnabar info --require verbs",
    says: [
      new RegExp(`^addon /.*/${bundled}/cinnabar\\.node \\(bundled with the package\\)$`, "m"),
      new RegExp(`^libfabric 2\\.1, /.*/${bundled}/libfabric\\.so\\.1 \\(bundled with the package\\)$`, "m"),
      /^verbs:\/\/ +\S+ +yes *$/m,
      ...Object.entries(devices).map(([name, host]) => new RegExp(`^${name}0:1 .* ${host} `, "m")),
    ],
  },
  {
    what: "calls and transfers over both devices, in one process and in two",
    command: `node first-answers.mjs ${addresses.join(" ")} && node pair.mjs ${addresses.join(" ")}`,
    says: [
      /(?:^verbs: Hello, verbs\nverbs: 16777216 bytes there and back\n){2}/m,
      /(?:^verbs:.*: Hello, process \d+, from process \d+\n){2}/m,
    ],
  },
  {
    what: "without libibverbs the report names the library and its package, and tcp works",
    command: `${libraries("libibverbs.so.1")}; npx --no-install cinnabar info --all && node first-answers.mjs tcp://127.0.0.1:0`,
    says: withoutVerbs(
      /libibverbs\.so\.1 was not found: install it \(Debian, Ubuntu: apt-get install libibverbs1/,
    ),
  },
  {
    what: "without librdmacm the report names the library and its package, and tcp works",
    command: `${libraries("librdmacm.so.1")}; npx --no-install cinnabar info --all && node first-answers.mjs tcp://127.0.0.1:0`,
    says: withoutVerbs(/librdmacm\.so\.1 was not found: install it/),
  },
  {
    what: "without drivers of devices the report names their package, and tcp works",
    command:
      "rm -r /etc/libibverbs.d; npx --no-install cinnabar info --all && node first-answers.mjs tcp://127.0.0.1:0",
    says: withoutVerbs(/no ibverbs provider library is installed.*apt-get install ibverbs-providers/),
  },
];

/**
 * Runs the package's libfabric on the RDMA devices of the guest, with and without the libraries of rdma-core. Without
 * the guest's kernel the stage reports that and passes.
 *
 * @param {import("../package/make.mjs").Archives} archives
 * @returns {Promise<import("../test/outcome.mjs").Outcome>}
 */
export async function testOnDevices({ main }) {
  if ((await kernelOfGuest()) === undefined)
    return {
      ...{ passed: 0, failed: 0, problems: [] },
      skipped: "NOT ON RDMA DEVICES: the guest's kernel is not built; npm run setup -- --guest builds it",
    };
  const checks = new Checks();
  await withInstalled(main, async (folder) => {
    // A user's environment, without settings of this checkout.
    const own = ["env", "-u", "CINNABAR_LIBFABRIC", "-u", "CINNABAR_ADDON", smallBuffers];
    const enter = [join(root, guest), "--dir", folder, "--timeout", "240", "--", ...own];
    for (const it of cases) await checks.run(`in the guest: ${it.what}`, it, enter);
  });
  return checks;
}
