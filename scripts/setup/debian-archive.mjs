import { existsSync, mkdirSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { SetupError, step } from "./command.mjs";

/*
 * Packages of any suite and architecture of Debian, without root: apt with a configuration of its own beside the
 * system's, which stays as it is. apt checks every download against the keys of Debian's archive.
 */

const keys = "/usr/share/keyrings/debian-archive-keyring.gpg";
const advice =
  "The mirror must be reachable; CINNABAR_DEBIAN_MIRROR names another. Older suites are at http://archive.debian.org/debian.";

/** @param {string} suite */
export const mirrorOf = (suite) => process.env.CINNABAR_DEBIAN_MIRROR ?? mirrors[suite] ?? mirrors.current;

/** @type {Record<string, string> & { current: string }} */
const mirrors = { current: "http://deb.debian.org/debian" };

/**
 * Makes a configuration of apt in a folder, and reads the lists of a suite with it.
 *
 * @param {string} folder exists, and belongs to the caller
 * @param {{ suite: string, architecture?: string, kind: "deb" | "deb-src" }} what the machine's architecture by default
 * @returns {Promise<NodeJS.ProcessEnv>} what apt-get must have in its environment to use the configuration
 */
export async function readLists(folder, { suite, architecture, kind }) {
  if (!existsSync(keys))
    throw new SetupError(`Debian's archive keys are missing: ${keys}`, "Install debian-archive-keyring.");
  const apt = join(folder, "apt");
  for (const name of ["lists/partial", "cache"]) mkdirSync(join(apt, name), { recursive: true });
  const only = architecture === undefined ? "" : `arch=${architecture} `;
  writeFileSync(
    join(apt, "sources.list"),
    `${kind} [${only}signed-by=${keys}] ${mirrorOf(suite)} ${suite} main\n`,
  );
  // No package counts as installed, or apt would look at the system's for an architecture that is not the system's.
  writeFileSync(join(apt, "status"), "");
  const lines = [
    `Dir::Etc::sourcelist "${join(apt, "sources.list")}";`,
    'Dir::Etc::sourceparts "-";',
    `Dir::State "${apt}";`,
    `Dir::State::lists "${join(apt, "lists")}";`,
    `Dir::State::status "${join(apt, "status")}";`,
    `Dir::Cache "${join(apt, "cache")}";`,
    'APT::Sandbox::User "";',
    'Acquire::Languages "none";',
  ];
  if (architecture !== undefined)
    lines.push(`APT::Architecture "${architecture}";`, `APT::Architectures { "${architecture}"; };`);
  const configuration = join(apt, "apt.conf");
  writeFileSync(configuration, `${lines.join("\n")}\n`);
  const env = { APT_CONFIG: configuration };
  const of = architecture === undefined ? suite : `${suite}, ${architecture}`;
  await step(`package lists of ${of}`, "apt-get", ["update", "-q"], { env, advice });
  return env;
}

/**
 * Downloads packages and unpacks them over each other, without running anything of theirs.
 *
 * @param {{ suite: string, architecture: string, packages: readonly string[], into: string, lists?: NodeJS.ProcessEnv }}
 * what `into` is made; `lists`: those of that suite and architecture, of `readLists`, for several calls
 */
export async function unpackPackages({ suite, architecture, packages, into, lists }) {
  const work = `${into}.packages`;
  rmSync(work, { recursive: true, force: true });
  mkdirSync(work, { recursive: true });
  mkdirSync(into, { recursive: true });
  const env = lists ?? (await readLists(work, { suite, architecture, kind: "deb" }));
  const fetch = ["-c", 'cd "$0" && apt-get download -q "$@"', work, ...packages];
  await step(`${packages.length} packages of ${suite}, ${architecture}`, "sh", fetch, { env, advice });
  const archives = readdirSync(work).filter((name) => name.endsWith(".deb"));
  if (archives.length !== packages.length)
    throw new SetupError(
      `apt-get download has left ${archives.length} of ${packages.length} packages in ${work}`,
    );
  const unpack = [
    "-ec",
    'into=$1; shift; cd "$0"; for file; do dpkg-deb -x "$file" "$into"; done',
    work,
    into,
  ];
  await step(`unpack them into ${into}`, "sh", [...unpack, ...archives.sort()]);
  rmSync(work, { recursive: true });
}

/**
 * Downloads and unpacks the archive of a source package as upstream made it and Debian keeps and vouches for it, without
 * Debian's patches.
 *
 * @param {{ suite: string, name: string, into: string }} what `into` is made
 * @returns {Promise<string>} its version
 */
export async function unpackSource({ suite, name, into }) {
  const work = `${into}.packages`;
  rmSync(work, { recursive: true, force: true });
  mkdirSync(work, { recursive: true });
  const env = await readLists(work, { suite, kind: "deb-src" });
  const fetch = ["-c", 'cd "$0" && apt-get source -q --download-only --tar-only "$1"', work, name];
  await step(`the source of ${name}, ${suite}`, "sh", fetch, { env, advice });
  const archive = readdirSync(work).find(
    (file) => file.startsWith(`${name}_`) && file.includes(".orig.tar."),
  );
  const version = /_([\d.]+)\.orig/.exec(archive ?? "")?.[1];
  if (archive === undefined || version === undefined)
    throw new SetupError(`apt-get source has left no ${name} in ${work}`);
  mkdirSync(into, { recursive: true });
  await step(`unpack ${archive}`, "tar", ["-xf", join(work, archive), "-C", into, "--strip-components=1"]);
  rmSync(work, { recursive: true });
  return version;
}
