import { isIP } from "node:net";
import type { DomainReport } from "../libfabric/addon.ts";
import type { RdmaDevice } from "./devices.ts";
import { canonicalGid, isInSubnet, type VerbsChoice } from "./verbs-choice.ts";

/** One address of this machine that a verbs endpoint can be bound to, with its device, port and interface. */
export interface Rail {
  readonly device: string;
  /** 0 where it is not known. */
  readonly port: number;
  /** "" where it is not known. */
  readonly interface: string;
  /** Numeric. */
  readonly address: string;
  /** The identifiers of the port that belong to the interface, as `canonicalGid` writes them. */
  readonly gids: readonly string[];
}

/** Addresses by network interface, as `os.networkInterfaces` reports them. */
export type InterfaceAddresses = Readonly<
  Record<string, readonly { readonly address: string }[] | undefined>
>;

/** libfabric names domains of verbs after their device, some with a suffix for the kind of endpoint. */
export function deviceOfDomain(domain: string): string {
  return domain.replace(/-(dgram|rdm|xrc)$/, "");
}

/** Every rail that libfabric can open, with the kernel's data about it. In the order of libfabric's preference. */
export function railsOf(
  domains: readonly DomainReport[],
  devices: readonly RdmaDevice[],
  interfaces: InterfaceAddresses,
): Rail[] {
  return domains
    .filter(({ scheme, address }) => scheme === "verbs" && address !== "")
    .map(({ domain, address }) => {
      const device = deviceOfDomain(domain);
      const name = interfaceOf(address, interfaces);
      const own = canonicalGid(address);
      const ports = devices.find((each) => each.device === device)?.ports ?? [];
      const port =
        ports.find(({ gids }) => gids.some(({ gid }) => canonicalGid(gid) === own)) ??
        ports.find((each) => each.interfaces.some((there) => there.name === name)) ??
        (ports.length === 1 ? ports[0] : undefined);
      const gids = (port?.gids ?? []).filter((gid) => gid.interface === "" || gid.interface === name);
      return {
        device,
        port: port?.port ?? 0,
        interface: name,
        address,
        gids: gids.map(({ gid }) => canonicalGid(gid)),
      };
    });
}

/** Whether a rail matches the choice. */
export function fits(rail: Rail, choice: VerbsChoice, rails: readonly Rail[]): boolean {
  return (
    (choice.device === undefined || choice.device === rail.device) &&
    (choice.port === undefined || choice.port === rail.port) &&
    (choice.interface === undefined || choice.interface === rail.interface) &&
    (choice.subnet === undefined || isInSubnet(bare(rail.address), choice.subnet)) &&
    (choice.gid === undefined || hasGid(rail, choice.gid, rails))
  );
}

/**
 * The identifier of an address selects that address. Another identifier (link-local, of InfiniBand, of iWARP) selects
 * all addresses of its interface.
 */
function hasGid(rail: Rail, gid: string, rails: readonly Rail[]): boolean {
  if (canonicalGid(rail.address) === gid) return true;
  return rail.gids.includes(gid) && !rails.some(({ address }) => canonicalGid(address) === gid);
}

/** One rail for each interface of each port, IPv4 before IPv6: a card with two addresses is opened once. */
export function oneForEachPort(rails: readonly Rail[]): Rail[] {
  const ordered = [...rails].sort((a, b) => isIP(bare(a.address)) - isIP(bare(b.address)));
  const chosen = new Map(ordered.reverse().map((rail) => [keyOf(rail), rail]));
  return rails.filter((rail) => chosen.get(keyOf(rail)) === rail);
}

/** "mlx5_0:1 eth0 10.77.1.1, …" for messages. */
export function listRails(rails: readonly Rail[]): string {
  return rails
    .map(({ device, port, interface: name, address }) =>
      [port === 0 ? device : `${device}:${port}`, name, address].filter((word) => word !== "").join(" "),
    )
    .join(", ");
}

function keyOf({ device, port, interface: name }: Rail): string {
  return `${device} ${port} ${name}`;
}

function interfaceOf(address: string, interfaces: InterfaceAddresses): string {
  const wanted = bare(address);
  const found = Object.entries(interfaces).find(([, own]) =>
    own?.some((each) => bare(each.address) === wanted),
  );
  return found?.[0] ?? "";
}

/** Without an IPv6 scope. */
function bare(address: string): string {
  return address.replace(/%.*/, "");
}
