import { mkdirSync, realpathSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { kept } from "../package/cache.mjs";
import { onPath, SetupError, step } from "../setup/command.mjs";
import { mirrorOf } from "../setup/debian-archive.mjs";
import { installPrograms } from "../setup/programs.mjs";

/** The oldest available Debian, with glibc 2.31, and the current one, with 2.41. */
export const suites = ["bullseye", "trixie"];

/** Releases of Node by their major number; the last is the newest. */
export const nodes = [20, 22, 24, 26];

/** Folders that are bound into a root, which is read-only. */
const mountPoints = ["opt/node", "opt/npm", "opt/cache", "home/user"];

/** Programs that roots are made and entered with. */
export async function installRootTools() {
  await installPrograms("Bare roots cannot be made here", {
    "apt-get": "apt",
    mmdebstrap: "mmdebstrap",
    bwrap: "bubblewrap",
  });
}

/**
 * A root of Debian with what every Debian has: no compiler, no libfabric, no Node. Node 26 itself wants libatomic1.
 *
 * @param {string} suite
 * @returns {Promise<string>} its folder
 */
export function bareRoot(suite) {
  const recipe = [suite, mirrorOf(suite), mountPoints.join(), "libatomic1"];
  return kept(`root-${suite}`, recipe, async (folder) => {
    const keys = "--keyring=/usr/share/keyrings/debian-archive-keyring.gpg";
    const args = ["--variant=minbase", "--include=libatomic1", keys, suite, folder, mirrorOf(suite)];
    // As root directly, else in a user namespace; if neither is possible, mmdebstrap reports it.
    await step(`a bare root of ${suite}`, "mmdebstrap", args, {
      advice:
        "Run the command as root, or allow user namespaces (kernel.unprivileged_userns_clone, newuidmap).",
    });
    for (const name of mountPoints) mkdirSync(join(folder, name), { recursive: true });
    for (const name of ["dev", "proc", "var/cache/apt"])
      rmSync(join(folder, name), { recursive: true, force: true });
    for (const name of ["dev", "proc"]) mkdirSync(join(folder, name));
  });
}

/** Makes what tests in roots take, so that they do not wait for it. */
export async function prepareRoots() {
  await installRootTools();
  for (const suite of suites) await bareRoot(suite);
  for (const major of nodes) await nodeOf(major, "x64");
}

/**
 * Node of a major version, from its npm package, which has nothing but the binary.
 *
 * @param {number} major
 * @param {"x64" | "arm64"} arch
 * @returns {Promise<string>} the folder that has `bin/node`
 */
export function nodeOf(major, arch) {
  const name = `node-linux-${arch}`;
  return kept(`${name}-${major}`, [`${name}@${major}`], async (folder) => {
    mkdirSync(folder, { recursive: true });
    const install = ["install", "--prefix", folder, "--force", "--ignore-scripts", "--no-audit", "--no-fund"];
    await step(`Node ${major} for ${arch}`, "npm", [...install, `${name}@${major}`]);
    const move = 'cd "$0" && mv "node_modules/$1/bin" . && rm -r node_modules package*.json';
    await step(`unpack Node ${major}`, "sh", ["-ec", move, folder, name]);
  });
}

/** The folder of this machine's npm, which runs with any Node. */
export function npmFolder() {
  const npm = onPath("npm");
  if (npm === undefined) throw new SetupError("npm is not on PATH.");
  return dirname(dirname(realpathSync(npm)));
}

/**
 * The words that run a command in a root, as a container would: without rights, with a process namespace of its own, a
 * read-only root and a /dev/shm of 64 MB.
 *
 * @param {{ root: string, node: string, home: string, cache: string, shm?: string, ownNetwork?: boolean | undefined }}
 * folders `home` is the user's folder and can be written to; `shm` is bound at /dev/shm instead of a new one;
 * `ownNetwork`: with loopback alone
 * @returns {string[]}
 */
export function inRoot({ root, node, home, cache, shm, ownNetwork = false }) {
  const memory =
    shm === undefined ? ["--size", String(64 << 20), "--tmpfs", "/dev/shm"] : ["--bind", shm, "/dev/shm"];
  return [
    ...["bwrap", "--unshare-user", "--uid", "1000", "--gid", "1000", "--unshare-pid", "--unshare-ipc"],
    ...(ownNetwork ? ["--unshare-net"] : []),
    ...["--die-with-parent", "--new-session", "--cap-drop", "ALL"],
    ...["--ro-bind", root, "/", "--proc", "/proc", "--dev", "/dev", ...memory, "--tmpfs", "/tmp"],
    ...["--ro-bind", node, "/opt/node", "--ro-bind", npmFolder(), "/opt/npm", "--bind", cache, "/opt/cache"],
    ...["--bind", home, "/home/user", "--chdir", "/home/user", "--clearenv"],
    ...[
      "--setenv",
      "PATH",
      "/home/user/.commands:/opt/node/bin:/usr/bin:/bin",
      "--setenv",
      "HOME",
      "/home/user",
    ],
    ...["--setenv", "npm_config_cache", "/opt/cache", "--setenv", "npm_config_update_notifier", "false"],
  ];
}
