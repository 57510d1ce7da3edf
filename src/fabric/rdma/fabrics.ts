import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { DomainReport, PatchReport, ProviderReport } from "../libfabric/addon.ts";
import { addonIfThere, type BuiltInReport, type ProvidersReport, providers } from "../libfabric/libfabric.ts";
import { packageFolder } from "../libfabric/own-files.ts";
import { type RdmaConnection, rdmaConnections } from "./connections.ts";
import { type RdmaDevice, rdmaDevices } from "./devices.ts";
import { type ForkSafety, forkSafety, type LockedMemory, lockedMemory } from "./pinned-memory.ts";
import { deviceOfDomain } from "./rails.ts";

/** One provider, whether it works on this machine, and its domains. */
export type FabricReport = (ProviderReport | BuiltInReport) & {
  /** Domains that libfabric offers for it; empty where it does not serve the scheme, or the provider does not work. */
  readonly domains: readonly Omit<DomainReport, "scheme" | "provider">[];
};

/** An RDMA device, with the addresses for `verbs://` URLs. */
export interface RdmaDeviceReport extends RdmaDevice {
  /**
   * Numeric addresses, as libfabric offers them. Empty where the device does not work; the entry of `verbs` says why.
   */
  readonly addresses: readonly string[];
}

/**
 * Report of a machine: fabrics, devices, limits, versions. Plain data with a stable JSON form, see docs/guide/cli.md.
 */
export interface FabricsReport {
  readonly versions: {
    readonly cinnabar: string;
    readonly node: string;
    /** For example "1.17"; null where libfabric was not found. */
    readonly libfabric: string | null;
  };
  /** Candidate paths of the addon and of libfabric; those in use have an empty `reason`. */
  readonly addon: ProvidersReport["addon"];
  readonly libfabric: ProvidersReport["libfabric"];
  readonly fabrics: readonly FabricReport[];
  readonly devices: readonly RdmaDeviceReport[];
  /** RDMA connections and listening ports of all processes, as far as the kernel reports them. */
  readonly connections: readonly RdmaConnection[];
  readonly lockedMemory: LockedMemory;
  readonly forkSafety: ForkSafety;
  /** Changes that Cinnabar makes in other libraries because of their faults. Empty where there is no addon. */
  readonly patches: readonly PatchReport[];
}

/**
 * Describes the fabrics, RDMA devices, limits and versions of this machine, and why something does not work. Takes some
 * milliseconds; never throws. `cinnabar info --json` prints this report.
 *
 * @example
 * const { fabrics, devices } = describeFabrics();
 * console.log(fabrics.filter(({ available }) => available).map(({ scheme }) => scheme), devices.length);
 */
export function describeFabrics(): FabricsReport {
  const { addon, libfabric, providers: found } = providers();
  const native = addonIfThere();
  const domains = native === undefined || !libfabric.loaded ? [] : native.domains();
  const devices = rdmaDevices();
  return {
    versions: {
      cinnabar: version(),
      node: process.versions.node,
      libfabric: libfabric.loaded ? libfabric.version.join(".") : null,
    },
    addon,
    libfabric,
    fabrics: found.map((report) => ({
      ...report,
      domains: report.available ? ofProvider(domains, report) : [],
    })),
    devices: devices.map((device) => ({
      ...device,
      addresses: addressesOf(device, domains),
    })),
    connections: rdmaConnections({ pid: "all" }),
    lockedMemory: lockedMemory(),
    forkSafety: forkSafety(),
    patches: native === undefined ? [] : native.patches(),
  };
}

function ofProvider(
  domains: readonly DomainReport[],
  { scheme, provider }: ProvidersReport["providers"][number],
) {
  return domains
    .filter((domain) => domain.scheme === scheme && domain.provider === provider)
    .map(({ scheme: _scheme, provider: _provider, ...domain }) => domain);
}

function addressesOf({ device }: RdmaDevice, domains: readonly DomainReport[]): string[] {
  const own = domains.filter(
    ({ scheme, domain, address }) =>
      scheme === "verbs" && address !== "" && deviceOfDomain(domain) === device,
  );
  return [...new Set(own.map(({ address }) => address))];
}

/** The version of the package; "" in a bundle that has lost it. */
export function version(): string {
  const folder = packageFolder();
  if (folder === undefined) return "";
  return (JSON.parse(readFileSync(join(folder, "package.json"), "utf8")) as { version: string }).version;
}
