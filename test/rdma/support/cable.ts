import { execFile } from "node:child_process";
import { networkInterfaces } from "node:os";
import { promisify } from "node:util";
import { type VerbsDevice, verbsDevices } from "../../matrix/verbs.ts";

const run = promisify(execFile);

/**
 * A pair of devices at the ends of a virtual cable that tests may pull, as `test/rdma/guest` makes them: vrxe0 with
 * address .1, vrxe1 with .2.
 */
export class Cable {
  readonly name: string;
  /** URLs to listen at, one at each end. */
  readonly urls: readonly [string, string];
  readonly #link: string;

  constructor({ name, host }: VerbsDevice) {
    this.name = name;
    this.urls = [`verbs://${host}:0`, `verbs://${host.replace(/\.1$/, ".2")}:0`];
    this.#link = linkOf(name);
  }

  /**
   * From now on nothing passes. The kernel's rxe (6.12) does not survive `ip link set … down` while it has something to
   * say: its queue pair for connection management goes into error, and no connection is made any more until the device
   * is made anew. So there all packets are lost instead.
   */
  async pull(): Promise<void> {
    if (this.#survivesDown) await run("ip", ["link", "set", this.#link, "down"]);
    else await this.disturb("loss", "100%");
  }

  /** Also brings back the route across the cable, which went with the link. */
  async plug(): Promise<void> {
    await this.calm();
    if (!this.#survivesDown) return;
    const { stdout } = await run("ip", ["-json", "-4", "address", "show", "dev", this.#link]);
    const [{ addr_info }] = JSON.parse(stdout) as [{ addr_info: { local: string }[] }];
    const own = addr_info[0]?.local as string;
    const other = own.replace(/\.1$/, ".2");
    await run("ip", ["link", "set", this.#link, "up"]);
    const table = `${own.split(".")[2]}0`;
    await run("ip", ["route", "replace", other, "dev", this.#link, "src", own, "table", table]);
  }

  /** From now on packets of either direction suffer so: tc-netem(8)'s words. */
  async disturb(...netem: readonly string[]): Promise<void> {
    for (const end of [this.#link, this.#otherLink])
      await run("tc", ["qdisc", "replace", "dev", end, "root", "netem", ...netem]);
  }

  async calm(): Promise<void> {
    for (const end of [this.#link, this.#otherLink])
      await run("tc", ["qdisc", "del", "dev", end, "root"]).catch(() => undefined);
  }

  get #survivesDown(): boolean {
    return this.name !== "rxe";
  }

  get #otherLink(): string {
    return this.#link.replace(/0$/, "1");
  }
}

function linkOf(name: string): string {
  return `v${name}0`;
}

/** None on a machine whose devices are somebody's. */
export const cables: readonly Cable[] = verbsDevices
  .filter(({ name }) => linkOf(name) in networkInterfaces())
  .map((device) => new Cable(device));
