import { Child } from "../child.ts";
import { Expectations } from "../expectations.ts";
import { liveMembers } from "../live-group.ts";
import type { BridgedNetwork } from "./bridged-network.ts";
import type { Order, Report } from "./orders.ts";

type Said<K extends Report["kind"]> = Report & { readonly kind: K } & { readonly by: number };

/** A group of processes, each with a network of its own. It collects their reports. */
export class PartedGroup implements AsyncDisposable {
  readonly views: Said<"view">[] = [];
  readonly calls: Said<"call">[] = [];
  readonly stops: Said<"stopped">[] = [];
  readonly #expectations = new Expectations();
  readonly #network: BridgedNetwork;
  readonly #children: Child<Order, Report>[] = [];
  readonly #here = new Set<number>();
  readonly #connected = new Set<number>();

  /** Resolves when all have a view of all. */
  static async start(
    network: BridgedNetwork,
    order: Omit<Order, "kind" | "rank" | "ip">,
  ): Promise<PartedGroup> {
    const group = new PartedGroup(network);
    // One after the other: processes that start together take the processors from those that are members already.
    for (const rank of group.ranks) await group.#add(rank, order);
    await group.untilAgreed(group.ranks, group.ranks);
    return group;
  }

  private constructor(network: BridgedNetwork) {
    this.#network = network;
  }

  get ranks(): readonly number[] {
    return Array.from({ length: liveMembers }, (_, rank) => rank);
  }

  /** Resolves when the newest view of each of these has those ranks and no other, and all have one version. */
  async untilAgreed(observers: readonly number[], ranks: readonly number[]): Promise<void> {
    const newest = () => observers.map((observer) => this.views.findLast(({ by }) => by === observer));
    const isAgreed = () => {
      const [first, ...others] = newest();
      return (
        String(first?.ranks) === String(ranks) && others.every((view) => view?.version === first?.version)
      );
    };
    try {
      await this.until(`${observers.length} members have a view of ${ranks.length}`, isAgreed);
    } catch (error) {
      const have = newest().map((view) => `${view?.by}: version ${view?.version}, ${view?.ranks}`);
      const stops = this.stops.map(({ by, why, atMs }) => `${by} ${why} at ${atMs}`);
      throw new Error(`they have\n${have.join("\n")}\n${stops.join("\n")}`, { cause: error });
    }
  }

  /** Resolves when it is so; rejects with an Error when it takes too long. */
  until(what: string, isSo: () => boolean): Promise<void> {
    return this.#expectations.until(what, isSo);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    // Now, since the kernel would do it some time after their processes have ended.
    for (const rank of this.#connected) this.#network.disconnect(rank);
    for (const child of this.#children) child.kill();
    await Promise.all(this.#children.map((child) => child.ended()));
  }

  async #add(rank: number, order: Omit<Order, "kind" | "rank" | "ip">): Promise<void> {
    const child = new Child<Order, Report>({
      program: "partition/member-process",
      launcher: ["unshare", "-n"],
      onReport: (report) => this.#onReport(rank, report),
    });
    this.#children.push(child);
    await this.until(`process ${rank} runs`, () => this.#here.has(rank));
    this.#network.connect(rank, child.pid);
    this.#connected.add(rank);
    child.order({ ...order, kind: "start", rank, ip: this.#network.ipOf(rank) });
    await this.until(`process ${rank} is a member`, () => this.views.some(({ by }) => by === rank));
  }

  #onReport(by: number, report: Report): void {
    if (report.kind === "here") this.#here.add(by);
    else if (report.kind === "view") this.views.push({ ...report, by });
    else if (report.kind === "call") this.calls.push({ ...report, by });
    else this.stops.push({ ...report, by });
    this.#expectations.check();
  }
}
