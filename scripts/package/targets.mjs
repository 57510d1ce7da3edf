/**
 * A platform that the package has binaries for.
 *
 * @typedef {object} Target
 * @property {string} name of its folder in the package, as the loader looks for it
 * @property {"x64" | "arm64"} arch as `process.arch` says it
 * @property {string} debian the architecture's name at Debian
 * @property {string} triple the prefix of its compilers
 * @property {readonly string[]} needed what its addon may link beside the C library's `baseLibraries`
 */

/** @type {readonly Target[]} */
export const targets = [
  {
    name: "linux-x64-glibc",
    arch: "x64",
    debian: "amd64",
    triple: "x86_64-linux-gnu",
    needed: ["ld-linux-x86-64.so.2"],
  },
  {
    name: "linux-arm64-glibc",
    arch: "arm64",
    debian: "arm64",
    triple: "aarch64-linux-gnu",
    needed: ["ld-linux-aarch64.so.1"],
  },
];

/** What of the C library binaries may link. */
export const baseLibraries = ["libc.so.6", "libdl.so.2", "libm.so.6", "libpthread.so.0", "librt.so.1"];

/** The newest glibc that binaries may need: Node's own binaries need 2.28. */
export const newestGlibc = [2, 28];
