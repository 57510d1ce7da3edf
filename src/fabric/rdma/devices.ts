import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

/** One entry of a port's table of global identifiers (GIDs). */
export interface RdmaGid {
  readonly index: number;
  /** Eight groups of four hexadecimal digits. */
  readonly gid: string;
  /** "RoCE v2", "IB/RoCE v1"; "" where the kernel does not report it. */
  readonly type: string;
  /** Its network interface; "" for none (InfiniBand). */
  readonly interface: string;
}

/** A network interface of a port. */
export interface RdmaInterface {
  readonly name: string;
  /** MTU of the interface; a domain's `mtuBytes` is the MTU that RDMA uses. 0 where the kernel does not report it. */
  readonly mtuBytes: number;
}

/** One port of an RDMA device. */
export interface RdmaPort {
  readonly port: number;
  /** "ACTIVE", "DOWN", "INIT", "ARMED"; "" where the kernel does not report it. */
  readonly state: string;
  /** "LinkUp", "Disabled", "Polling", … */
  readonly physicalState: string;
  /** "InfiniBand" or "Ethernet". */
  readonly linkLayer: string;
  /** As the kernel prints it: "10 Gb/sec (1X FDR10)". */
  readonly rate: string;
  readonly gids: readonly RdmaGid[];
  readonly interfaces: readonly RdmaInterface[];
}

/** An RDMA device, as the kernel reports it in "/sys/class/infiniband". */
export interface RdmaDevice {
  readonly device: string;
  readonly transport: "InfiniBand" | "RoCE" | "iWARP" | "other";
  /** Firmware version; "" where the kernel does not report it. */
  readonly firmware: string;
  readonly guid: string;
  readonly ports: readonly RdmaPort[];
}

const unusedGid = /^[0:]*$/;

/** The RDMA devices of this machine, sorted by name. `sys` is the path of sysfs. */
export function rdmaDevices(sys = "/sys"): RdmaDevice[] {
  const folder = join(sys, "class", "infiniband");
  return namesIn(folder).map((device) => deviceIn(sys, join(folder, device), device));
}

function deviceIn(sys: string, folder: string, device: string): RdmaDevice {
  const ports = namesIn(join(folder, "ports")).map((port) => portIn(sys, join(folder, "ports", port), +port));
  return {
    device,
    transport: transportOf(textOf(join(folder, "node_type")), ports),
    firmware: textOf(join(folder, "fw_ver")),
    guid: textOf(join(folder, "node_guid")),
    ports,
  };
}

function transportOf(nodeType: string, ports: readonly RdmaPort[]): RdmaDevice["transport"] {
  if (nodeType.startsWith("4:")) return "iWARP";
  if (!nodeType.startsWith("1:")) return "other";
  return ports.some(({ linkLayer }) => linkLayer === "Ethernet") ? "RoCE" : "InfiniBand";
}

function portIn(sys: string, folder: string, port: number): RdmaPort {
  const gids = namesIn(join(folder, "gids"))
    .map(Number)
    .sort((a, b) => a - b)
    .map((index) => ({
      index,
      gid: textOf(join(folder, "gids", `${index}`)),
      type: textOf(join(folder, "gid_attrs", "types", `${index}`)),
      interface: textOf(join(folder, "gid_attrs", "ndevs", `${index}`)),
    }))
    .filter(({ gid }) => !unusedGid.test(gid));
  return {
    port,
    state: meaningOf(textOf(join(folder, "state"))),
    physicalState: meaningOf(textOf(join(folder, "phys_state"))),
    linkLayer: textOf(join(folder, "link_layer")),
    rate: textOf(join(folder, "rate")),
    gids,
    interfaces: [...new Set(gids.map((gid) => gid.interface))]
      .filter((name) => name !== "")
      .map((name) => ({ name, mtuBytes: Number(textOf(join(sys, "class", "net", name, "mtu"))) })),
  };
}

/** "4: ACTIVE" is ACTIVE. */
function meaningOf(text: string): string {
  return text.slice(text.indexOf(":") + 1).trim();
}

function namesIn(folder: string): string[] {
  try {
    return readdirSync(folder).sort();
  } catch {
    return [];
  }
}

/** The text of a file of the kernel; "" for a missing file, or one that does not answer, such as that of an unused entry. */
export function textOf(path: string): string {
  try {
    return readFileSync(path, "utf8").trim();
  } catch {
    return "";
  }
}
