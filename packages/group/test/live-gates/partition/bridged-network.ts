import { execFileSync } from "node:child_process";

/**
 * Two bridges in the network namespace of this process. Members with namespaces of their own are connected to one or the
 * other. This process has an address at the first one.
 */
export class BridgedNetwork {
  readonly hostIp = "10.99.0.254";

  constructor() {
    ip("link", "set", "lo", "up");
    for (const [place, bridge] of ["bridge0", "bridge1"].entries()) {
      // One that was not given an address takes that of a cable, and another one when that is moved.
      ip("link", "add", bridge, "address", `02:00:00:00:00:0${place}`, "type", "bridge");
      ip("link", "set", bridge, "up");
    }
    ip("address", "add", `${this.hostIp}/24`, "dev", "bridge0");
  }

  ipOf(id: number): string {
    return `10.99.0.${id + 1}`;
  }

  /** Connects the namespace of a process to the first bridge. */
  connect(id: number, pid: number): void {
    ip("link", "add", `member${id}`, "type", "veth", "peer", "name", "eth0", "netns", String(pid));
    const inside = (...args: string[]) => execFileSync("nsenter", ["-t", String(pid), "-n", "ip", ...args]);
    inside("link", "set", "lo", "up");
    inside("address", "add", `${this.ipOf(id)}/24`, "dev", "eth0");
    inside("link", "set", "eth0", "up");
    this.move([id], 0);
    ip("link", "set", `member${id}`, "up");
  }

  /** Moves the cables of members to a bridge. They cannot reach members at the other bridge. */
  move(ids: readonly number[], bridge: 0 | 1): void {
    for (const id of ids) ip("link", "set", `member${id}`, "master", `bridge${bridge}`);
  }

  /** Undoes `connect`. */
  disconnect(id: number): void {
    ip("link", "delete", `member${id}`);
  }
}

function ip(...args: string[]): void {
  execFileSync("ip", args);
}
