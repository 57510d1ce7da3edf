import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { live, root } from "../setup/command.mjs";
import { mirrorOf } from "../setup/debian-archive.mjs";
import { installPrograms } from "../setup/programs.mjs";
import { nodeOf, npmFolder } from "../test-package/roots.mjs";

/** @typedef {{ name: string, suite: string, node: number, who: "root" | "user" }} FreshMachine */

/**
 * Folders of this machine that a bare root gets copies of.
 *
 * @typedef {object} Folders
 * @property {string} checkout its last commit is cloned
 * @property {string} node has `bin/node`
 * @property {string} npm
 * @property {string} report a file that takes a line for each check: mmdebstrap has the output of its hooks for itself
 */

/**
 * Debian 12 with libfabric 1.17 and Debian 13 with 2.1, each with the oldest and the newest Node.
 *
 * @type {readonly FreshMachine[]}
 */
export const freshMachines = [
  { name: "12-root", suite: "bookworm", node: 20, who: "root" },
  { name: "13-root", suite: "trixie", node: 20, who: "root" },
  { name: "12-user", suite: "bookworm", node: 26, who: "user" },
  { name: "13-user", suite: "trixie", node: 26, who: "user" },
];

/** Most that one machine takes: packages, a native build, the demo, and for root a smoke of the tests. */
const timeoutMs = 30 * 60_000;

/** @param {FreshMachine} machine */
export async function prepareFreshMachine({ node }) {
  await installPrograms("Bare roots cannot be made here", {
    "apt-get": "apt",
    mmdebstrap: "mmdebstrap",
    git: "git",
    ip: "iproute2",
  });
  await nodeOf(node, "x64");
}

/**
 * Tries the last commit on a machine with only Debian's smallest set of packages and Node.
 *
 * @param {FreshMachine} machine
 * @returns {Promise<import("./outcome.mjs").Outcome>}
 */
export async function tryFreshMachine({ suite, node, who }) {
  const hook = fileURLToPath(new URL("in-fresh-machine.mjs", import.meta.url));
  const work = mkdtempSync(join(tmpdir(), "cinnabar-fresh-"));
  const report = join(work, "report");
  /** @type {Folders} */
  const folders = { checkout: root, node: await nodeOf(node, "x64"), npm: npmFolder(), report };
  const args = [
    ...[
      "--variant=minbase",
      "--format=null",
      "--include=libatomic1",
      "--keyring=/usr/share/keyrings/debian-archive-keyring.gpg",
    ],
    `--customize-hook='${process.execPath}' '${hook}' ${who} "$1"`,
    ...[suite, "/dev/null", mirrorOf(suite)],
  ];
  const env = { FRESH_MACHINE: JSON.stringify(folders) };
  try {
    // If mmdebstrap needs a user namespace, another user writes the file.
    writeFileSync(report, "", { mode: 0o666 });
    chmodSync(report, 0o666);
    chmodSync(work, 0o755);
    const ending = await live("mmdebstrap", args, { env, timeoutMs });
    const said = readFileSync(report, "utf8");
    const passed = said.match(/^ok {6}/gm)?.length ?? 0;
    if (ending === "0") return { passed, failed: 0, problems: [] };
    const problem = said.match(/^FAILED {2}(.*)$/m)?.[1] ?? `mmdebstrap ended with ${ending}`;
    return { passed, failed: 1, problems: [problem] };
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}
