import { existsSync, rmSync } from "node:fs";
import { join } from "node:path";
import { onPath, root } from "./command.mjs";
import { unpackPackages } from "./debian-archive.mjs";
import { isCurrent, markCurrent } from "./stamp.mjs";

/** The oldest suite that has a gateway of etcd as the tests want it: its programs run on later systems, too. */
const suite = "bookworm";
/** Debian's names of architectures with another name in Node. */
const architectures = /** @type {Record<string, string>} */ ({ x64: "amd64", arm64: "arm64" });

/**
 * Puts programs that tests of groups and of the command line start into `build/`, from Debian's packages. They are not
 * installed: the package of etcd would start a service. If a program is not available, its tests are skipped, and
 * set-up reports it.
 */
export async function getProgramsOfTests() {
  await getProgram("etcd", "usr/bin/etcd", ["etcd-server"]);
  await getProgram("mpirun", "usr/bin/mpirun.openmpi", [
    ...["openmpi-bin", "openmpi-common", "libopenmpi3", "libpmix2", "libhwloc15", "libmunge2", "libucx0"],
    ...["libevent-2.1-7", "libevent-core-2.1-7", "libevent-pthreads-2.1-7"],
  ]);
  await getProgram("tmux", "usr/bin/tmux", ["tmux", "libevent-core-2.1-7", "libtinfo6", "libutempter0"]);
}

/** Puts Prometheus and its promtool into `build/`, for the stage that asks it for what an engine exports. */
export async function getPrometheus() {
  await getProgram("prometheus", "usr/bin/prometheus", ["prometheus"]);
  if (onPath("prometheus") === undefined && !existsSync(join(root, "build/prometheus/usr/bin/prometheus")))
    throw new Error("Debian's package prometheus cannot be had here");
}

/**
 * @param {string} name of the program, and of its folder in `build/`
 * @param {string} program below that
 * @param {readonly string[]} packages
 */
async function getProgram(name, program, packages) {
  const folder = join(root, "build", name);
  const refused = `without-${name}`;
  if (onPath(name) !== undefined || existsSync(join(folder, program)) || isCurrent(refused, "refused", []))
    return;
  try {
    const architecture = architectures[process.arch];
    if (architecture === undefined) throw new Error(`Debian's ${suite} has none for ${process.arch}`);
    await unpackPackages({ suite, architecture, packages, into: folder });
  } catch (error) {
    rmSync(folder, { recursive: true, force: true });
    markCurrent(refused, "refused");
    const why = error instanceof Error ? error.message.split("\n")[0] : error;
    console.log(`[setup] NO TEST WITH ${name.toUpperCase()}: it cannot be had here: ${why}`);
  }
}
