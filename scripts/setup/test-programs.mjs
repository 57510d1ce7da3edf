import { existsSync, mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { onPath, root } from "./command.mjs";
import { readLists, unpackPackages } from "./debian-archive.mjs";
import { markRefused, wasRefused } from "./stamp.mjs";

/** The oldest suite that has a gateway of etcd as the tests want it: its programs run on later systems, too. */
const suite = "bookworm";
/** Debian's names of architectures with another name in Node. */
const architectures = /** @type {Record<string, string>} */ ({ x64: "amd64", arm64: "arm64" });

/**
 * @typedef {object} TestProgram
 * @property {string} name of the program, and of its folder in `build/`
 * @property {string} file below that
 * @property {readonly string[]} packages
 */

/** @type {readonly TestProgram[]} */
const programs = [
  { name: "etcd", file: "usr/bin/etcd", packages: ["etcd-server"] },
  {
    name: "mpirun",
    file: "usr/bin/mpirun.openmpi",
    packages: [
      ...["openmpi-bin", "openmpi-common", "libopenmpi3", "libpmix2", "libhwloc15", "libmunge2", "libucx0"],
      ...["libevent-2.1-7", "libevent-core-2.1-7", "libevent-pthreads-2.1-7"],
    ],
  },
  {
    name: "tmux",
    file: "usr/bin/tmux",
    packages: ["tmux", "libevent-core-2.1-7", "libtinfo6", "libutempter0"],
  },
];

/** The names of those that are missing, and that were not refused before. */
export const missingProgramsOfTests = () => programs.filter(isMissing).map(({ name }) => name);

/**
 * Puts programs that tests of groups and of the command line start into `build/`, from Debian's packages. They are not
 * installed: the package of etcd would start a service. If a program is not available, its tests are skipped, and
 * set-up reports it.
 */
export async function getProgramsOfTests() {
  await getPrograms(programs);
}

/** Puts Prometheus and its promtool into `build/`, for the stage that asks it for what an engine exports. */
export async function getPrometheus() {
  await getPrograms([{ name: "prometheus", file: "usr/bin/prometheus", packages: ["prometheus"] }]);
  if (onPath("prometheus") === undefined && !existsSync(join(root, "build/prometheus/usr/bin/prometheus")))
    throw new Error("Debian's package prometheus cannot be had here");
}

/** @param {TestProgram} program */
function isMissing({ name, file }) {
  const isThere = onPath(name) !== undefined || existsSync(join(root, "build", name, file));
  return !isThere && !wasRefused(name);
}

/**
 * Reads the lists of packages once for all programs.
 *
 * @param {readonly TestProgram[]} wanted
 */
async function getPrograms(wanted) {
  const missing = wanted.filter(isMissing);
  const architecture = architectures[process.arch];
  if (missing.length === 0) return;
  const folder = join(root, "build", "test-programs");
  mkdirSync(folder, { recursive: true });
  try {
    if (architecture === undefined) throw new Error(`Debian's ${suite} has none for ${process.arch}`);
    const lists = await readLists(folder, { suite, architecture, kind: "deb" });
    for (const program of missing) {
      const { name, packages } = program;
      const into = join(root, "build", name);
      await unpackPackages({ suite, architecture, packages, into, lists }).catch((error) =>
        refuse(program, error),
      );
    }
  } catch (error) {
    for (const program of missing) refuse(program, error);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** @param {TestProgram} program @param {unknown} error */
function refuse({ name }, error) {
  rmSync(join(root, "build", name), { recursive: true, force: true });
  markRefused(name);
  const why = error instanceof Error ? error.message.split("\n")[0] : error;
  console.log(`[setup] NO TEST WITH ${name.toUpperCase()}: it cannot be had here: ${why}`);
}
