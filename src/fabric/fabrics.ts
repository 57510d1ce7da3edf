import { readFileSync } from "node:fs";
import type { DomainReport, ProviderReport } from "./addon.ts";
import { type ForkSafety, forkSafety } from "./fork-safety.ts";
import { addonIfThere, type ProvidersReport, providers } from "./libfabric.ts";
import { type LockedMemory, lockedMemory } from "./locked-memory.ts";
import { deviceOfDomain } from "./rails.ts";
import { type RdmaConnection, rdmaConnections } from "./rdma-connections.ts";
import { type RdmaDevice, rdmaDevices } from "./rdma-devices.ts";

/** One way to reach peers, whether it can be used here, and by which devices. */
export type FabricReport = (ProviderReport | MemReport) & {
  /** What libfabric offers of it; empty where it cannot be used. */
  readonly domains: readonly Omit<DomainReport, "scheme" | "provider">[];
};

interface MemReport {
  readonly scheme: "mem";
  readonly provider: string;
  readonly available: true;
  readonly reason: "";
}

/** An RDMA device with the addresses that `verbs://` can be used at. */
export interface RdmaDeviceReport extends RdmaDevice {
  /** Numeric, as libfabric offers them. Empty where the device cannot be used; the fabric `verbs` says why. */
  readonly addresses: readonly string[];
  /** Whether it can fetch the pages of registered memory when it meets them, in every kind of transfer that is used here (on-demand paging). False where the device cannot be opened. */
  readonly onDemandPaging: boolean;
}

/** What this machine has for Cinnabar. Plain data, stable as JSON: see docs/guide/cli.md. */
export interface FabricsReport {
  readonly versions: {
    readonly cinnabar: string;
    readonly node: string;
    /** "1.17"; null where it was not found. */
    readonly libfabric: string | null;
  };
  /** Where the addon and libfabric were looked for; an empty reason: taken. */
  readonly addon: ProvidersReport["addon"];
  readonly libfabric: ProvidersReport["libfabric"];
  readonly fabrics: readonly FabricReport[];
  readonly devices: readonly RdmaDeviceReport[];
  /** RDMA connections and listening ports of all processes that the kernel tells of. */
  readonly connections: readonly RdmaConnection[];
  readonly lockedMemory: LockedMemory;
  readonly forkSafety: ForkSafety;
}

/** Looks at everything and throws nothing: providers, devices, limits, versions, and why something cannot be used. Takes some milliseconds. */
export function describeFabrics(): FabricsReport {
  const { addon, libfabric, providers: found } = providers();
  const native = libfabric.loaded ? addonIfThere() : undefined;
  const domains = native === undefined ? [] : native.domains();
  const devices = rdmaDevices();
  const paging = native === undefined || devices.length === 0 ? [] : native.paging();
  return {
    versions: {
      cinnabar: ownVersion(),
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
      onDemandPaging: paging.some((other) => other.device === device.device && other.onDemand),
    })),
    connections: rdmaConnections({ pid: "all" }),
    lockedMemory: lockedMemory(),
    forkSafety: forkSafety(),
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

function ownVersion(): string {
  // src/fabric and dist/fabric lie equally deep.
  const text = readFileSync(new URL("../../package.json", import.meta.url), "utf8");
  return (JSON.parse(text) as { version: string }).version;
}
