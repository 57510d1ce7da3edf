import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { onPath, SetupError, step } from "./command.mjs";
import { rootPrefix } from "./system-packages.mjs";

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
    await installTools();
    rmSync(folder, { recursive: true, force: true });
    mkdirSync(join(folder, "lists", "partial"), { recursive: true });
    const { source, version } = await unpackSource(suite, folder);
    await build(source, join(folder, "install"), version);
    rmSync(source, { recursive: true });
    writeFileSync(finished, `libfabric ${version} from Debian's source package (${suite})\n`);
  }
  return { path, from: readFileSync(finished, "utf8").trim() };
}

function cacheFolder() {
  const { CINNABAR_LIBFABRIC_CACHE, XDG_CACHE_HOME } = process.env;
  return CINNABAR_LIBFABRIC_CACHE || join(XDG_CACHE_HOME || join(homedir(), ".cache"), "cinnabar-libfabric");
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

/** Installs the tools that are missing where that may be done, as the set-up does. */
async function installTools() {
  const missing = Object.entries(tools).filter(([program]) => onPath(program) === undefined);
  if (missing.length === 0) return;
  const packages = missing.map(([, name]) => name);
  const byHand = `sudo apt-get install ${packages.join(" ")}`;
  const prefix = await rootPrefix();
  if (onPath("apt-get") === undefined || prefix === undefined) {
    throw new SetupError(
      `libfabric cannot be built here: ${missing.map(([program]) => program).join(", ")} not found.`,
      `Run this, then the command again:\n    ${byHand}`,
    );
  }
  const [command = "", ...args] = [...prefix, "apt-get", "install", "-y", "-q", "--no-install-recommends"];
  await step(`Debian packages ${packages.join(" ")}`, command, [...args, ...packages], {
    env: { DEBIAN_FRONTEND: "noninteractive" },
    advice: `Run this by hand to see what is wrong:\n    ${byHand}`,
  });
}

/**
 * Downloads and unpacks the source package, by an apt configuration of its own beside the system's, which stays as it
 * is.
 *
 * @param {string} suite
 * @param {string} folder
 */
async function unpackSource(suite, folder) {
  const keys = "/usr/share/keyrings/debian-archive-keyring.gpg";
  if (!existsSync(keys)) {
    throw new SetupError(`Debian's archive keys are missing: ${keys}`, "Install debian-archive-keyring.");
  }
  const sources = join(folder, "sources.list");
  const mirror = process.env.CINNABAR_DEBIAN_MIRROR ?? "http://deb.debian.org/debian";
  writeFileSync(sources, `deb-src [signed-by=${keys}] ${mirror} ${suite} main\n`);
  const configuration = join(folder, "apt.conf");
  writeFileSync(
    configuration,
    [
      `Dir::Etc::sourcelist "${sources}";`,
      'Dir::Etc::sourceparts "-";',
      `Dir::State::lists "${join(folder, "lists")}";`,
      `Dir::Cache "${join(folder, "cache")}";`,
      'APT::Sandbox::User "";',
      "",
    ].join("\n"),
  );
  const env = { APT_CONFIG: configuration };
  const advice =
    "The mirror must be reachable; CINNABAR_DEBIAN_MIRROR names another. CINNABAR_LIBFABRIC takes a library that is there.";
  mkdirSync(join(folder, "cache"), { recursive: true });
  await step(`package lists of ${suite}`, "apt-get", ["update", "-q"], { env, advice });
  // Upstream's archive as Debian keeps and vouches for it; Debian's patches are about its packages.
  const fetch = ["-c", `cd "$0" && apt-get source -q --download-only --tar-only libfabric`, folder];
  await step(`libfabric's source of ${suite}`, "sh", fetch, { env, advice });
  const archive = readdirSync(folder).find(
    (name) => name.startsWith("libfabric_") && name.includes(".orig.tar."),
  );
  const version = /_([\d.]+)\.orig/.exec(archive ?? "")?.[1];
  if (archive === undefined || version === undefined)
    throw new SetupError(`apt-get source has left no libfabric in ${folder}`);
  const source = join(folder, "source");
  mkdirSync(source);
  await step(`unpack ${archive}`, "tar", [
    "-xf",
    join(folder, archive),
    "-C",
    source,
    "--strip-components=1",
  ]);
  return { source, version };
}

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
