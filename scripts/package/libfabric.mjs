import { copyFileSync, mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { arch } from "node:process";
import { SetupError, step } from "../setup/command.mjs";
import { unpackSource } from "../setup/debian-archive.mjs";
import { kept } from "./cache.mjs";
import { gccOfSuite, sysroot } from "./sysroot.mjs";
import { targets } from "./targets.mjs";
import { installTools } from "./tools.mjs";

/** @typedef {import("./targets.mjs").Target} Target */

/** The version in the package, and the suite of Debian with its source package. */
export const bundled = { version: "2.1.0", suite: "trixie" };

/** `verbs` is a file of its own beside the library, loaded where the system has libibverbs and librdmacm. */
const wanted = ["--enable-tcp=yes", "--enable-shm=yes", "--enable-rxm=yes", "--enable-verbs=dl"];
const unwanted = [
  ...[
    "psm2",
    "psm3",
    "efa",
    "opx",
    "usnic",
    "udp",
    "rxd",
    "sockets",
    "mrail",
    "ucx",
    "cxi",
    "lpp",
    "lnx",
    "sm2",
  ],
  ...["perf", "hook_debug", "hook_hmem", "dmabuf_peer_mem", "trace", "profile"],
].map((name) => `--disable-${name}`);
const without = ["cuda", "rocr", "ze", "gdrcopy", "uring"].map((name) => `--with-${name}=no`);

/**
 * libfabric also loads every `*-fi.so` of this folder's lib/libfabric, so only root may be able to write there.
 */
const prefix = "/opt/cinnabar";

/** The files of it that go into the package. */
export const libraryFiles = ["libfabric.so.1", "libverbs-fi.so"];

/**
 * libfabric's source, with its `configure` made.
 *
 * @returns {Promise<string>} its folder
 */
export function libfabricSource() {
  return kept("libfabric-source", [JSON.stringify(bundled), "autoreconf"], async (folder) => {
    const version = await unpackSource({ suite: bundled.suite, name: "libfabric", into: folder });
    if (version !== bundled.version)
      throw new SetupError(
        `Debian's ${bundled.suite} has libfabric ${version}, and the package has ${bundled.version}.`,
        "Change `bundled` in scripts/package/libfabric.mjs, and run the suite on it: npm run test:libfabric",
      );
    await step("libfabric, autoreconf", "sh", ["-c", 'cd "$0" && autoreconf -if', folder]);
  });
}

/**
 * Builds libfabric for a target.
 *
 * @param {Target} target
 * @returns {Promise<string>} the folder of `libraryFiles`, stripped
 */
export async function buildLibfabric(target) {
  const source = await libfabricSource();
  const root = await sysroot(target);
  const recipe = [JSON.stringify(target), source, root, new URL(import.meta.url)];
  return kept(`libfabric-${target.name}`, recipe, async (folder) => {
    const build = `${folder}.build`;
    rmSync(build, { recursive: true, force: true });
    mkdirSync(build, { recursive: true });
    const title = `libfabric ${bundled.version}, ${target.name}`;
    const options = await configureOptions(target, { source, root, build });
    const inBuild = ["-c", 'build=$0; cd "$build" && exec "$@"', build];
    await step(`${title}, configure`, "sh", [...inBuild, join(source, "configure"), ...options]);
    await step(`${title}, make`, "sh", ["-c", 'make -j"$(nproc)" -C "$0"', build]);
    const install = ["-C", build, "install-exec", `DESTDIR=${join(build, "install")}`];
    await step(`${title}, make install`, "make", install);
    mkdirSync(folder, { recursive: true });
    const lib = join(build, "install", prefix, "lib");
    copyFileSync(join(lib, "libfabric.so.1"), join(folder, "libfabric.so.1"));
    copyFileSync(join(lib, "libfabric", "libverbs-fi.so"), join(folder, "libverbs-fi.so"));
    for (const file of libraryFiles.map((name) => join(folder, name))) {
      await step(`${title}, strip`, `${target.triple}-strip`, ["--strip-unneeded", file]);
      // libtool has put the prefix there. libfabric asks for `libverbs-fi.so` by its name, and this finds it.
      await step(`${title}, run path`, "patchelf", ["--set-rpath", "$ORIGIN", file]);
    }
    rmSync(build, { recursive: true });
  });
}

/**
 * The library of the package for this machine, built if it is not in the cache.
 *
 * @returns {Promise<string>} its path
 */
export async function ownLibfabric() {
  const target = targets.find((each) => each.arch === arch);
  if (target === undefined) throw new SetupError(`The package has no libfabric for ${arch}.`);
  await installTools([target]);
  return join(await buildLibfabric(target), "libfabric.so.1");
}

/**
 * @param {Target} target
 * @param {{ source: string, root: string, build: string }} folders
 */
async function configureOptions({ triple }, { source, root, build }) {
  const own = (
    await step("the compiler's own headers", `${triple}-gcc`, ["-print-file-name=include"])
  ).trim();
  const include = join(root, "usr", "include");
  const gcc = join(root, "usr", "lib", "gcc", triple, gccOfSuite);
  const [usr, lib] = [join(root, "usr", "lib", triple), join(root, "lib", triple)];
  const headers = [own, join(include, triple), include].map((folder) => `-isystem ${folder}`).join(" ");
  return [
    ...[`--host=${triple}`, `--prefix=${prefix}`, "--sysconfdir=/etc", "--disable-static"],
    ...[...wanted, ...unwanted, ...without],
    `CC=${triple}-gcc --sysroot=${root} -nostdinc ${headers}`,
    // The same bytes wherever it is built.
    `CFLAGS=-O2 -g0 -fstack-protector-strong -D_FORTIFY_SOURCE=2 -B${gcc} -B${usr} ` +
      `-ffile-prefix-map=${source}=libfabric -ffile-prefix-map=${build}=build`,
    `LDFLAGS=-B${gcc} -B${usr} -L${gcc} -L${usr} -L${lib} -static-libgcc ` +
      `-Wl,-rpath-link,${usr}:${lib} -Wl,-z,relro,-z,now,--as-needed`,
  ];
}
