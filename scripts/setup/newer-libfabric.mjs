import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { step } from "./command.mjs";
import { unpackSource } from "./debian-archive.mjs";
import { installPrograms } from "./programs.mjs";

/**
 * A libfabric newer than the system's, built from Debian's own source package. It is not installed: it stays in the
 * user's cache folder, and is found there the next time. To build it anew, remove the folder.
 *
 * @param {string} suite a suite of Debian: "trixie" has 2.1, "sid" the newest
 * @returns {Promise<{ path: string, from: string }>} the library, and in words where it comes from
 */
export async function newerLibfabric(suite) {
  const folder = join(cacheFolder(), suite);
  const finished = join(folder, "finished");
  const path = join(folder, "install", "lib", "libfabric.so.1");
  if (!existsSync(finished) || !existsSync(path)) {
    await installPrograms("libfabric cannot be built here", tools);
    rmSync(folder, { recursive: true, force: true });
    const source = join(folder, "source");
    const version = await unpackSource({ suite, name: "libfabric", into: source });
    await build(source, join(folder, "install"), version);
    rmSync(source, { recursive: true });
    writeFileSync(finished, `libfabric ${version} from Debian's source package (${suite})\n`);
  }
  return { path, from: readFileSync(finished, "utf8").trim() };
}

function cacheFolder() {
  const { XDG_CACHE_HOME } = process.env;
  return join(XDG_CACHE_HOME || join(homedir(), ".cache"), "cinnabar-libfabric");
}

/** Programs by the Debian package that brings them. */
const tools = {
  "apt-get": "apt",
  autoreconf: "autoconf",
  automake: "automake",
  libtoolize: "libtool",
  make: "make",
  tar: "tar",
  xz: "xz-utils",
};

/** Of the providers only what is tested here, so that it needs no package of any. */
const wanted = ["tcp", "shm", "rxm"];
const unwanted = [
  ...["verbs", "psm2", "psm3", "efa", "opx", "usnic", "udp", "rxd", "sockets", "mrail", "ucx", "cxi"],
  ...["lpp", "lnx", "sm2", "perf", "hook_debug", "hook_hmem", "dmabuf_peer_mem", "trace", "profile"],
];

/**
 * @param {string} source
 * @param {string} install
 * @param {string} version
 */
async function build(source, install, version) {
  const choice = [
    ...wanted.map((name) => `--enable-${name}=yes`),
    ...unwanted.map((name) => `--disable-${name}`),
  ];
  /** @param {string} script @param {...string} args */
  const inSource = (script, ...args) => ["-c", `cd "$0" && ${script}`, source, ...args];
  const title = `libfabric ${version}`;
  await step(`${title}, autoreconf`, "sh", inSource("autoreconf -if"));
  await step(`${title}, configure`, "sh", inSource('./configure "$@"', `--prefix=${install}`, ...choice));
  await step(`${title}, make (some minutes)`, "sh", inSource('make -j"$(nproc)" install'));
}
