import { existsSync, readdirSync, readlinkSync, rmSync, symlinkSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { unpackPackages } from "../setup/debian-archive.mjs";
import { kept } from "./cache.mjs";

/** @typedef {import("./targets.mjs").Target} Target */

/**
 * Debian 11, with glibc 2.31: the newest symbols in binaries come from the static archives of the C++ library, so the
 * oldest that there is decides on which systems they run.
 */
export const suite = "bullseye";

/** The GCC that the suite's C++ library belongs to. */
export const gccOfSuite = "10";

const packages = [
  ...["libc6", "libc6-dev", "linux-libc-dev", "libcrypt1", "libcrypt-dev", "libatomic1"],
  ...["libstdc++6", "libgcc-s1", `libstdc++-${gccOfSuite}-dev`, `libgcc-${gccOfSuite}-dev`],
  // For libfabric's provider of RDMA devices, which is loaded only where the system has these libraries.
  ...["libibverbs-dev", "libibverbs1", "librdmacm-dev", "librdmacm1", "libnl-3-200", "libnl-route-3-200"],
];

/**
 * Headers and libraries of an old Debian to compile and link against, for any architecture.
 *
 * @param {Target} target
 * @returns {Promise<string>} its folder
 */
export function sysroot({ name, debian }) {
  return kept(`sysroot-${name}`, [suite, packages.join(), new URL(import.meta.url)], async (folder) => {
    await unpackPackages({ suite, architecture: debian, packages, into: folder });
    makeLinksRelative(folder, folder);
  });
}

/**
 * The headers of libfabric that the addon is compiled with: those of 1.17, whose structures every later version serves.
 *
 * @returns {Promise<string>} the folder that has `fabric/rdma/`
 */
export async function libfabricHeaders() {
  const what = { suite: "bookworm", architecture: "amd64", packages: ["libfabric-dev"] };
  const recipe = [JSON.stringify(what), new URL(import.meta.url)];
  const folder = await kept("libfabric-headers", recipe, (into) => unpackPackages({ ...what, into }));
  return join(folder, "usr", "include");
}

/**
 * A link to /lib/… means the sysroot's, not the machine's.
 *
 * @param {string} root
 * @param {string} folder
 */
function makeLinksRelative(root, folder) {
  for (const entry of readdirSync(folder, { withFileTypes: true })) {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) makeLinksRelative(root, path);
    if (!entry.isSymbolicLink()) continue;
    const to = readlinkSync(path);
    if (!to.startsWith("/")) continue;
    rmSync(path);
    // Debian's package of a library links to folders of packages that are not here.
    if (existsSync(join(root, to))) symlinkSync(relative(dirname(path), join(root, to)), path);
  }
}
