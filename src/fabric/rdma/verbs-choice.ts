import { BlockList, isIP } from "node:net";
import { checkedBy, type Field, type FieldsOf, fail, resolveNested } from "../../base/options/options.ts";

/**
 * Selects the RDMA devices for `verbs://`. All given fields must match. Default: any device. `npx cinnabar info` lists
 * the devices of a machine.
 *
 * @example
 * const engine = await Engine.open({ listen: ["verbs://*:7400"], verbs: { device: "mlx5_0:1", subnet: "10.77.1.0/24" } });
 */
export interface VerbsOptions {
  /** Name of an RDMA device, or of one port: "mlx5_0", "mlx5_0:1". */
  readonly device?: string | undefined;
  /** Name of a network interface: "eth0". */
  readonly interface?: string | undefined;
  /** Subnet of the device's address: "10.77.1.0/24", "fd00:7::/64". */
  readonly subnet?: string | undefined;
  /**
   * Global identifier (GID) of the device's port: "fe80::506b:4b03:c1:9b2a". The GID of an IP address selects that
   * address only.
   */
  readonly gid?: string | undefined;
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
// Linux allows nearly every name; real interfaces have names of this form.
const interfacePattern = /^[A-Za-z0-9_][A-Za-z0-9_.-]{0,14}$/;

const verbsFields = {
  device: written('an RDMA device or a port of it, "mlx5_0" or "mlx5_0:1"', (text) =>
    devicePattern.test(text),
  ),
  interface: written('a network interface, "eth0"', (text) => interfacePattern.test(text)),
  subnet: written('an address and a prefix length, "10.77.1.0/24"', (text) => subnetOf(text) !== undefined),
  gid: written(
    'a global identifier, eight groups as an IPv6 address, "fe80::1"',
    (text) => isIP(text) === 6 && !text.includes("%"),
  ),
} satisfies FieldsOf<VerbsOptions>;

/** A string of a form. */
function written(form: string, fits: (text: string) => boolean): Field<string> {
  return checkedBy((where, name, value) =>
    typeof value === "string" && fits(value) ? value : fail(TypeError, where, name, form, value),
  );
}

/** @throws TypeError that names the field and the form it must have. */
export function verbsChoice(where: string, path: string, options: VerbsOptions): VerbsChoice {
  const { device, gid, ...others } = resolveNested(where, path, options, verbsFields);
  const [, name, port] = (device === undefined ? undefined : devicePattern.exec(device)) ?? [];
  const choice = {
    ...{ ...others, device: name, port: port === undefined ? undefined : Number(port) },
    gid: gid === undefined ? undefined : canonicalGid(gid),
  };
  return Object.fromEntries(Object.entries(choice).filter(([, value]) => value !== undefined));
}

/** The canonical form of a global identifier, or the identifier that belongs to an IP address. */
export function canonicalGid(text: string): string {
  const bare = text.replace(/%.*/, "");
  return new URL(`rdma://[${isIP(bare) === 4 ? `::ffff:${bare}` : bare}]/`).hostname.slice(1, -1);
}

/** Whether a numeric address lies in a subnet. False if either is malformed. */
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
