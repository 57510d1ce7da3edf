import { BlockList, isIP } from "node:net";

/**
 * Selects the RDMA devices for `verbs://`. All given fields must match. Default: any device. `npx cinnabar info` lists
 * the devices of a machine.
 *
 * @example
 * const engine = await Engine.open({ listen: ["verbs://*:7400"], verbs: { device: "mlx5_0:1", subnet: "10.77.1.0/24" } });
 */
export interface VerbsOptions {
  /** Name of an RDMA device, or of one port: "mlx5_0", "mlx5_0:1". */
  readonly device?: string;
  /** Name of a network interface: "eth0". */
  readonly interface?: string;
  /** Subnet of the device's address: "10.77.1.0/24", "fd00:7::/64". */
  readonly subnet?: string;
  /**
   * Global identifier (GID) of the device's port: "fe80::506b:4b03:c1:9b2a". The GID of an IP address selects that
   * address only.
   */
  readonly gid?: string;
}

/** The selection, parsed. */
export interface VerbsChoice {
  readonly device?: string;
  readonly port?: number;
  readonly interface?: string;
  readonly subnet?: string;
  /** As `canonicalGid` writes it. */
  readonly gid?: string;
}

const devicePattern = /^([A-Za-z0-9][A-Za-z0-9_.-]{0,62})(?::(\d{1,3}))?$/;
// What Linux allows is nearly everything; what has a name like this is all that people have.
const interfacePattern = /^[A-Za-z0-9_][A-Za-z0-9_.-]{0,14}$/;

/** @throws TypeError that names the field and the form it must have. */
export function verbsChoice(where: string, options: VerbsOptions): VerbsChoice {
  const { device, interface: name, subnet, gid } = options;
  const refuse = (field: string, form: string): never => {
    const value = options[field as keyof VerbsOptions];
    throw new TypeError(`${where}.${field} must be ${form}, it is ${JSON.stringify(value)}`);
  };
  const choice: { -readonly [F in keyof VerbsChoice]: VerbsChoice[F] } = {};
  if (device !== undefined) {
    const match = typeof device === "string" ? devicePattern.exec(device) : null;
    if (match === null) return refuse("device", 'an RDMA device or a port of it, "mlx5_0" or "mlx5_0:1"');
    choice.device = match[1] as string;
    if (match[2] !== undefined) choice.port = Number(match[2]);
  }
  if (name !== undefined) {
    if (typeof name !== "string" || !interfacePattern.test(name))
      return refuse("interface", 'a network interface, "eth0"');
    choice.interface = name;
  }
  if (subnet !== undefined) {
    if (typeof subnet !== "string" || subnetOf(subnet) === undefined)
      return refuse("subnet", 'an address and a prefix length, "10.77.1.0/24"');
    choice.subnet = subnet;
  }
  if (gid !== undefined) {
    if (typeof gid !== "string" || isIP(gid) !== 6 || gid.includes("%"))
      return refuse("gid", 'a global identifier, eight groups as an IPv6 address, "fe80::1"');
    choice.gid = canonicalGid(gid);
  }
  return choice;
}

/** The one way to write a global identifier, or the identifier that belongs to an IP address. */
export function canonicalGid(text: string): string {
  const bare = text.replace(/%.*/, "");
  return new URL(`rdma://[${isIP(bare) === 4 ? `::ffff:${bare}` : bare}]/`).hostname.slice(1, -1);
}

/** Whether a numeric address lies in a subnet. False where either is none. */
export function isInSubnet(address: string, subnet: string): boolean {
  return subnetOf(subnet)?.check(address, isIP(address) === 6 ? "ipv6" : "ipv4") ?? false;
}

function subnetOf(subnet: string): BlockList | undefined {
  const [, address = "", length = ""] = /^([^/]*)\/(\d{1,3})$/.exec(subnet) ?? [];
  const version = isIP(address);
  if (version === 0 || Number(length) > (version === 6 ? 128 : 32)) return undefined;
  const list = new BlockList();
  list.addSubnet(address, Number(length), version === 6 ? "ipv6" : "ipv4");
  return list;
}
