import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { packageFolder } from "./own-files.ts";

/*
 * Where the addon and libfabric are looked for, in this order:
 *
 * The addon: `CINNABAR_ADDON`; a build of the sources (`npm run setup` in a checkout, `cinnabar build` in an installed
 * package); the binary of the package.
 *
 * libfabric: `CINNABAR_LIBFABRIC`; the library of the package; the system's, which respects LD_LIBRARY_PATH.
 * `CINNABAR_LIBFABRIC=system` puts the system's before the package's. The package's comes first by default because
 * processes that share memory on a host must have the same version.
 */

/** The setting that names a path, or the source of the file. */
export type Origin =
  | "CINNABAR_ADDON"
  | "CINNABAR_LIBFABRIC"
  | "built from the sources"
  | "bundled with the package"
  | "the system's";

/** A path to try. */
export interface PathCandidate {
  readonly path: string;
  readonly origin: Origin;
}

/** Paths of the package's files; empty where this code does not know its own path. */
export interface OwnFiles {
  readonly built: readonly string[];
  readonly bundledAddon: readonly string[];
  readonly bundledLibfabric: readonly string[];
}

/** Candidates for the addon, best first. */
export function addonCandidates(env: NodeJS.ProcessEnv, files: OwnFiles): PathCandidate[] {
  const { CINNABAR_ADDON: named = "" } = env;
  if (named !== "") return [{ path: named, origin: "CINNABAR_ADDON" }];
  return [
    ...files.built.map((path): PathCandidate => ({ path, origin: "built from the sources" })),
    ...files.bundledAddon.map((path): PathCandidate => ({ path, origin: "bundled with the package" })),
  ];
}

/** Candidates for libfabric, best first. */
export function libfabricCandidates(env: NodeJS.ProcessEnv, files: OwnFiles): PathCandidate[] {
  const { CINNABAR_LIBFABRIC: named = "" } = env;
  if (named !== "" && named !== "system") return [{ path: named, origin: "CINNABAR_LIBFABRIC" }];
  const bundled = files.bundledLibfabric.map(
    (path): PathCandidate => ({
      path,
      origin: "bundled with the package",
    }),
  );
  const system: PathCandidate = { path: "libfabric.so.1", origin: "the system's" };
  return named === "system" ? [system, ...bundled] : [...bundled, system];
}

/** Paths of this package's files, whether they exist or not. */
export function ownFiles(): OwnFiles {
  const folder = packageFolder();
  const isModule = (import.meta.url as string | undefined) !== undefined;
  const isLinux = process.platform === "linux";
  const platform = `${process.platform}-${process.arch}-glibc`;
  // src/fabric/libfabric and dist/fabric/libfabric lie equally deep, so one path serves the checkout and its build.
  // Tools that trace files read whole file names in the calls. webpack must not touch them, because it would fail for a
  // file that is not built.
  const built =
    isModule &&
    fileURLToPath(
      new URL(/* webpackIgnore: true */ "../../../native/build/Release/cinnabar.node", import.meta.url),
    );
  const addon =
    isModule &&
    isLinux &&
    fileURLToPath(
      new URL(
        /* webpackIgnore: true */ `../../../native/${process.platform}-${process.arch}-glibc/cinnabar.node`,
        import.meta.url,
      ),
    );
  const libfabric =
    isModule &&
    isLinux &&
    fileURLToPath(
      new URL(
        /* webpackIgnore: true */ `../../../native/${process.platform}-${process.arch}-glibc/libfabric.so.1`,
        import.meta.url,
      ),
    );
  // For a bundle: where the package is installed.
  const installed = (path: string, wanted = true) => wanted && folder && join(folder, "native", path);
  return {
    built: distinct(built, installed("build/Release/cinnabar.node")),
    bundledAddon: distinct(addon, installed(`${platform}/cinnabar.node`, isLinux)),
    bundledLibfabric: distinct(libfabric, installed(`${platform}/libfabric.so.1`, isLinux)),
  };
}

function distinct(...paths: (string | false | undefined)[]): string[] {
  return [...new Set(paths.filter((path) => typeof path === "string"))];
}
