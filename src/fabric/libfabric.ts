import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import { RpcError } from "../errors/rpc-error.ts";
import type { Addon, LoadReport, ProviderReport } from "./addon.ts";

/**
 * Finds the addon and libfabric at first use, never at import, and keeps the story for `providers()`.
 *
 * The addon: `CINNABAR_ADDON`, this package's own build, a platform package. libfabric: `CINNABAR_LIBFABRIC`, then the system's
 * `libfabric.so.1`, which respects LD_LIBRARY_PATH.
 */
const require = createRequire(import.meta.url);

/** One place where the addon was looked for; `reason` is empty for the one that was taken. */
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
  // src/fabric and dist/fabric lie equally deep, so one path serves the checkout and its build.
  const built = fileURLToPath(new URL("../../native/build/Release/cinnabar.node", import.meta.url));
  return [built, `@cinnabar/native-${process.platform}-${process.arch}`];
}

function findAddon(): Addon | undefined {
  if (addon !== undefined) return addon;
  addonAttempts = [];
  for (const path of addonCandidates()) {
    if (path.startsWith("/") && !existsSync(path)) {
      addonAttempts.push({ path, reason: "no such file" });
      continue;
    }
    try {
      addon = require(path) as Addon;
      addonAttempts.push({ path, reason: "" });
      return addon;
    } catch (error) {
      addonAttempts.push({ path, reason: firstLine((error as Error).message) });
    }
  }
  return undefined;
}

function load(native: Addon): LoadReport {
  if (loadReport?.loaded) return loadReport;
  const override = process.env.CINNABAR_LIBFABRIC;
  const candidates = override !== undefined && override !== "" ? [override] : ["libfabric.so.1"];
  loadReport = native.load(candidates);
  return loadReport;
}

/** The addon for what needs no libfabric and has a way without it: undefined where it is missing. Looked for once, as a miss is slow. */
export function addonIfThere(): Addon | undefined {
  if (!sought) findAddon();
  sought = true;
  return addon;
}

/** The addon with libfabric loaded. Throws `unavailable`, naming all that was tried and what to install. */
export function requireLibfabric(): Addon {
  const native = findAddon();
  if (native === undefined) {
    throw new RpcError({
      code: "unavailable",
      message:
        `cinnabar's native addon was not found; tried ${tried(addonAttempts)}. ` +
        "In a checkout build it by `npm run setup`; mem:// works without it",
      origin: "local",
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
    });
  }
  return native;
}

/** What this machine offers and why something is missing. */
export interface ProvidersReport {
  /** Where the addon was looked for; empty reason: taken. */
  readonly addon: readonly AddonAttempt[];
  /** Where libfabric was looked for, and its version. */
  readonly libfabric: LoadReport;
  readonly providers: readonly (
    | { readonly scheme: "mem"; readonly provider: string; readonly available: true; readonly reason: "" }
    | ProviderReport
  )[];
}

/** Tries everything and throws nothing: the report behind `cinnabar info` and error messages. */
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

function firstLine(text: string): string {
  return text.split("\n", 1)[0] as string;
}
