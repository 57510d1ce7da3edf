import { RpcError } from "../../base/errors/rpc-error.ts";
import type { Addon, NativeLoadReport, ProviderReport } from "./addon.ts";
import { addonFault, fileFault, loadFault } from "./addon-file.ts";
import {
  addonCandidates,
  libfabricCandidates,
  type Origin,
  ownFiles,
  type PathCandidate,
} from "./candidates.ts";
import { adviceForMissingAddon, thisMachine } from "./missing-addon.ts";
import { ownRequire } from "./own-files.ts";
import { otherRuntime } from "./runtime.ts";
import type { SocketScheme } from "./url.ts";

/*
 * Finds the addon and libfabric at first use, never at import, and keeps the attempts for `providers()`.
 */

/** One candidate path of the addon. `reason` says why it was not used; it is empty for the one in use. */
export interface AddonAttempt {
  readonly path: string;
  /** The setting that names the path, or the source of the file. */
  readonly origin: Origin;
  readonly reason: string;
}

/** The result of loading libfabric. */
export interface LoadReport {
  readonly loaded: boolean;
  /** The file in use, without links; "" if none. */
  readonly path: string;
  /** Where the file in use comes from; null if none. */
  readonly origin: Origin | null;
  /** libfabric's own version, [0, 0] if none. */
  readonly version: readonly [number, number];
  /** Paths that were tried; the one in use has an empty `reason`. */
  readonly tried: readonly { readonly path: string; readonly origin: Origin; readonly reason: string }[];
}

let addonAttempts: AddonAttempt[] = [];
let addon: Addon | undefined;
let sought = false;
let loadReport: LoadReport | undefined;

function findAddon(): Addon | undefined {
  if (addon !== undefined) return addon;
  addonAttempts = [];
  // It would end the process: it uses functions of libuv that only Node has.
  const runtime = otherRuntime();
  const fault = runtime === "" ? "" : `the addon needs Node, and this is ${runtime}`;
  for (const { path, origin } of addonCandidates(process.env, ownFiles())) {
    const reason = fileFault(path) || fault || tryAddon(path);
    addonAttempts.push({ path, origin, reason });
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
  const candidates = libfabricCandidates(process.env, ownFiles());
  // A missing file of the package is not reported; a missing path of a setting is.
  const isWorthTrying = ({ path, origin }: PathCandidate) =>
    origin !== "bundled with the package" || fileFault(path) === "";
  const chosen = candidates.filter(isWorthTrying);
  loadReport = withOrigins(native.load(chosen.map(({ path }) => path)), chosen);
  return loadReport;
}

function withOrigins(report: NativeLoadReport, candidates: readonly PathCandidate[]): LoadReport {
  // Another thread, with another environment, may have loaded it.
  const known = [...candidates, ...libfabricCandidates({}, ownFiles())];
  const originOf = (path: string): Origin =>
    known.find((candidate) => candidate.path === path)?.origin ?? "CINNABAR_LIBFABRIC";
  const tried = report.tried.map((attempt) => ({ ...attempt, origin: originOf(attempt.path) }));
  const used = tried.find(({ reason }) => reason === "");
  return { ...report, tried, origin: used?.origin ?? null };
}

/** The addon, for functions that need no libfabric; undefined where it is missing. Searches once, as a miss is slow. */
export function addonIfThere(): Addon | undefined {
  if (!sought) findAddon();
  sought = true;
  return addon;
}

/** The addon. Throws `unavailable` with the paths that were tried and what to install. */
export function requireAddon(): Addon {
  const native = findAddon();
  if (native === undefined) {
    throw new RpcError({
      code: "unavailable",
      message:
        `cinnabar's native addon was not found; tried ${tried(addonAttempts)}. ` +
        adviceForMissingAddon(thisMachine()),
      retryable: false,
    });
  }
  return native;
}

/** The addon with libfabric loaded. Throws `unavailable` with the paths that were tried and what to install. */
export function requireLibfabric(): Addon {
  const native = requireAddon();
  const report = load(native);
  if (!report.loaded) {
    throw new RpcError({
      code: "unavailable",
      message:
        `libfabric was not found; tried ${tried(report.tried)}. Install it (Debian, Ubuntu: apt-get install libfabric1; ` +
        "Fedora: dnf install libfabric) or point CINNABAR_LIBFABRIC at libfabric.so.1; net://, shm:// and mem:// work without it",
      origin: "local",
      retryable: false,
    });
  }
  return native;
}

/** The entry of a fabric that needs no native code. It works everywhere. */
export interface BuiltInReport {
  readonly scheme: "mem" | SocketScheme;
  readonly provider: string;
  readonly available: true;
  readonly reason: "";
}

/** What this machine offers, and why something is missing. */
export interface ProvidersReport {
  /** Candidate paths of the addon; the one in use has an empty `reason`. */
  readonly addon: readonly AddonAttempt[];
  /** Candidate paths of libfabric, and the version in use. */
  readonly libfabric: LoadReport;
  readonly providers: readonly (BuiltInReport | ProviderReport)[];
}

/**
 * Reports which providers work on this machine, and why the others do not. Loads the addon and libfabric; never throws.
 *
 * @example
 * for (const { scheme, available, reason } of providers().providers) console.log(scheme, available ? "works" : reason);
 */
export function providers(): ProvidersReport {
  const native = findAddon();
  const builtIn = (scheme: BuiltInReport["scheme"], provider: string): BuiltInReport => ({
    scheme,
    provider,
    available: true,
    reason: "",
  });
  const reason = native === undefined ? "needs the addon" : "";
  const shm: ProviderReport = { scheme: "shm", provider: "shm", available: native !== undefined, reason };
  const libfabric: LoadReport =
    native === undefined
      ? {
          loaded: false,
          path: "",
          version: [0, 0],
          origin: null,
          tried: [{ path: "libfabric.so.1", origin: "the system's", reason: "needs the addon" }],
        }
      : load(native);
  const found = native !== undefined && libfabric.loaded ? native.providers() : [];
  return {
    addon: addonAttempts,
    libfabric,
    providers: [
      builtIn("mem", "mem"),
      builtIn("net", "node:net"),
      builtIn(process.platform === "win32" ? "net+pipe" : "net+unix", "node:net"),
      shm,
      ...found,
    ],
  };
}

function tried(attempts: readonly { readonly path: string; readonly reason: string }[]): string {
  return attempts.map(({ path, reason }) => `${path} (${reason})`).join(", ");
}
