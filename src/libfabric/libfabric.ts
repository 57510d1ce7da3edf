import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { RpcError } from "../errors/rpc-error.ts";
import type { Addon, LoadReport, ProviderReport } from "./addon.ts";
import { addonFault, fileFault, loadFault } from "./addon-file.ts";
import { ownRequire, packageFolder } from "./own-files.ts";

/*
 * Finds the addon and libfabric at first use, never at import, and keeps the story for `providers()`.
 *
 * The addon: `CINNABAR_ADDON`, this package's own build, a platform package. libfabric: `CINNABAR_LIBFABRIC`, then the
 * system's `libfabric.so.1`, which respects LD_LIBRARY_PATH.
 */

/** One candidate path of the addon. `reason` says why it was not used; it is empty for the one in use. */
export interface AddonAttempt {
  readonly path: string;
  readonly reason: string;
}

let addonAttempts: AddonAttempt[] = [];
let addon: Addon | undefined;
let sought = false;
let loadReport: LoadReport | undefined;

function addonCandidates(): string[] {
  const override = process.env.CINNABAR_ADDON;
  if (override !== undefined && override !== "") return [override];
  const folder = packageFolder();
  const isModule = (import.meta.url as string | undefined) !== undefined;
  const built = [
    // src/libfabric and dist/libfabric lie equally deep, so one path serves the checkout and its build. A bundler must
    // not look for the file, which is made by another build.
    isModule &&
      fileURLToPath(
        new URL(/* webpackIgnore: true */ "../../native/build/Release/cinnabar.node", import.meta.url),
      ),
    // For a bundle: where the package is installed.
    folder && join(folder, "native/build/Release/cinnabar.node"),
  ].filter((path) => typeof path === "string");
  return [...new Set(built), `@cinnabar/native-${process.platform}-${process.arch}`];
}

function findAddon(): Addon | undefined {
  if (addon !== undefined) return addon;
  addonAttempts = [];
  for (const path of addonCandidates()) {
    const reason = fileFault(path) || tryAddon(path);
    addonAttempts.push({ path, reason });
    if (reason === "") return addon;
  }
  return undefined;
}

/** Why the file is not the addon; "" if it is, and is in use from now on. */
function tryAddon(path: string): string {
  try {
    const loaded = ownRequire()(path) as Addon;
    const fault = addonFault(loaded);
    if (fault === "") addon = loaded;
    return fault;
  } catch (error) {
    return loadFault(error);
  }
}

function load(native: Addon): LoadReport {
  if (loadReport?.loaded) return loadReport;
  const override = process.env.CINNABAR_LIBFABRIC;
  const candidates = override !== undefined && override !== "" ? [override] : ["libfabric.so.1"];
  loadReport = native.load(candidates);
  return loadReport;
}

/** The addon, for functions that need no libfabric; undefined where it is missing. Searches once, as a miss is slow. */
export function addonIfThere(): Addon | undefined {
  if (!sought) findAddon();
  sought = true;
  return addon;
}

/** The addon with libfabric loaded. Throws `unavailable` with the paths that were tried and what to install. */
export function requireLibfabric(): Addon {
  const native = findAddon();
  if (native === undefined) {
    throw new RpcError({
      code: "unavailable",
      message:
        `cinnabar's native addon was not found; tried ${tried(addonAttempts)}. ` +
        "In a checkout build it by `npm run setup`; mem:// works without it",
      origin: "local",
      retryable: false,
    });
  }
  const report = load(native);
  if (!report.loaded) {
    throw new RpcError({
      code: "unavailable",
      message:
        `libfabric was not found; tried ${tried(report.tried)}. Install it (Debian, Ubuntu: apt-get install libfabric1; ` +
        "Fedora: dnf install libfabric) or point CINNABAR_LIBFABRIC at libfabric.so.1; mem:// works without it",
      origin: "local",
      retryable: false,
    });
  }
  return native;
}

/** What this machine offers, and why something is missing. */
export interface ProvidersReport {
  /** Candidate paths of the addon; the one in use has an empty `reason`. */
  readonly addon: readonly AddonAttempt[];
  /** Candidate paths of libfabric, and the version in use. */
  readonly libfabric: LoadReport;
  readonly providers: readonly (
    | { readonly scheme: "mem"; readonly provider: string; readonly available: true; readonly reason: "" }
    | ProviderReport
  )[];
}

/**
 * Reports which providers work on this machine, and why the others do not. Loads the addon and libfabric; never throws.
 *
 * @example
 * for (const { scheme, available, reason } of providers().providers) console.log(scheme, available ? "works" : reason);
 */
export function providers(): ProvidersReport {
  const mem = { scheme: "mem", provider: "mem", available: true, reason: "" } as const;
  const native = findAddon();
  const libfabric: LoadReport =
    native === undefined
      ? {
          loaded: false,
          path: "",
          version: [0, 0],
          tried: [{ path: "libfabric.so.1", reason: "needs the addon" }],
        }
      : load(native);
  const found = native !== undefined && libfabric.loaded ? native.providers() : [];
  return { addon: addonAttempts, libfabric, providers: [mem, ...found] };
}

function tried(attempts: readonly { readonly path: string; readonly reason: string }[]): string {
  return attempts.map(({ path, reason }) => `${path} (${reason})`).join(", ");
}
