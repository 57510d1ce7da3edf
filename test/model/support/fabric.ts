import { connectionAborted } from "../../../src/fabric/inbox-port.ts";
import { isGone, MemFabric, type MemLink, type MemNature, MemPort } from "../../../src/fabric/mem-port.ts";
import type { MemRegion } from "../../../src/fabric/mem-regions.ts";
import type { Extent, TransferOp } from "../../../src/fabric/port.ts";

const inputOutput = 5;

// Few slots, so that they run out.
export const layout = { slotBytes: 4096, sendSlots: 8, receiveSlots: 12 };
/** The most messages on the way in one direction: what a socket or a queue holds. */
const maxOnTheWay = 24;

/** What a provider promises of its memory and its peers. */
export type Nature = Pick<MemNature, "reportsDeath" | "revokesKeys" | "immediateBytes">;

/** What is under way and happens when the schedule says so. */
export interface Step {
  readonly what: string;
  /** Steps of one lane happen in their order; those without a lane in any. */
  readonly lane: string;
  /** A message, which a faulty fabric may lose, repeat or overtake. */
  readonly isMessage: boolean;
  readonly run: (status: number) => void;
}

/** A transfer from its posting to its completion. */
interface Move {
  readonly from: MemPort;
  readonly to: MemPort | undefined;
  /** Ends it now, as a connection that breaks does. */
  readonly cut: (status: number) => void;
}

/**
 * A fabric on which nothing happens by itself: each delivery, each transfer's beginning and its end, each completion
 * and each report of a death is a step that waits to be taken. Its ports are those of `mem://`.
 */
export class ModelFabric extends MemFabric<MemPort> {
  override readonly nature: MemNature;
  readonly steps: Step[] = [];
  readonly moves = new Set<Move>();
  /** What no engine may ever do. */
  readonly violations: string[] = [];
  readonly #ids = new Map<MemPort, number>();
  /** Sends that wait for a port to take what came before: they fail with it. */
  readonly #stuck = new Map<MemPort, (() => void)[]>();
  readonly #killed = new Set<MemPort>();
  #keys = 0n;

  constructor(nature: Nature) {
    super();
    this.nature = { ...nature, maxExtents: 4, refusesSilently: !nature.reportsDeath };
  }

  open(name: string): MemPort {
    const port = new MemPort({ scheme: "mem", host: "", port: 0, name }, layout, this);
    this.#ids.set(port, this.#ids.size);
    this.#stuck.set(port, []);
    return port;
  }

  override nextKey(): bigint {
    return ++this.#keys;
  }

  post(what: string, run: (status: number) => void, lane = "", isMessage = false): void {
    this.steps.push({ what, lane, isMessage, run });
  }

  /** Steps that may be taken now: the first of each lane, and all without one. */
  ready(): number[] {
    const lanes = new Set<string>();
    const ready: number[] = [];
    for (const [index, { lane }] of this.steps.entries()) {
      if (lane !== "" && lanes.size === lanes.add(lane).size) continue;
      ready.push(index);
    }
    return ready;
  }

  #laneOf(from: MemPort, to: MemPort): string {
    return `${this.#ids.get(from)}>${this.#ids.get(to)}`;
  }

  override carry(from: MemPort, link: MemLink | undefined, slot: number, message: Uint8Array): void {
    if (isGone(link)) {
      this.post(`${from.name} cannot send`, () => from.endSend(slot, connectionAborted));
      return;
    }
    const { port } = link;
    const lane = this.#laneOf(from, port);
    let left = false;
    const leave = (status: number) => {
      if (left) return;
      left = true;
      // Where keys outlive their grants, a message that cannot be sent means that the connection is gone, and with it
      // all that was under way on it.
      if (status !== 0 && !this.nature.revokesKeys) this.breakLink(from, port);
      from.endSend(slot, status);
    };
    // A peer that takes nothing fills the way to it: then the message keeps its slot.
    const isFull = this.steps.reduce((count, step) => count + (step.lane === lane ? 1 : 0), 0) >= maxOnTheWay;
    const arrive = () => {
      port.deliver(message);
      if (isFull) leave(0);
    };
    this.post(`${from.name}>${port.name} ${message.byteLength} bytes`, arrive, lane, true);
    if (isFull) this.#stuck.get(port)?.push(() => leave(connectionAborted));
    else this.post(`${from.name} has sent`, leave);
  }

  override move(
    from: MemPort,
    link: MemLink | undefined,
    token: number,
    op: TransferOp,
    extents: readonly Extent[],
    notice: bigint | undefined,
  ): void {
    let used: MemRegion[] = [];
    const end = (status: number, moved: number) => {
      if (!this.moves.delete(move)) return;
      for (const region of used) leave(region);
      used = [];
      from.endTransfer(token, status, moved);
    };
    const move: Move = { from, to: link?.port, cut: (status) => end(status, 0) };
    this.moves.add(move);
    const what = `${op} ${token} by ${from.name}`;
    const begin = () => {
      if (!this.moves.has(move)) return;
      if (isGone(link)) return end(connectionAborted, 0);
      for (const extent of extents) {
        const region = link.port.memory.find(op, extent);
        if (typeof region === "number") return end(region, 0);
        region.users++;
        used.push(region);
      }
      this.post(`${what} ends`, finish);
    };
    const finish = (fault: number) => {
      if (!this.moves.has(move)) return;
      let moved = 0;
      // One that fails may have moved anything from nothing to everything.
      for (const [index, extent] of extents.entries()) {
        if (!from.memory.copy(op, extent, used[index] as MemRegion))
          this.misused(from, "gave memory back under a transfer of its own");
        moved += extent.bytes;
      }
      if (notice !== undefined && fault === 0) link?.port.deliverPutNotification(notice, moved);
      end(fault === 0 ? 0 : inputOutput, fault === 0 ? moved : 0);
    };
    this.post(`${what} begins`, begin);
  }

  /**
   * The connection between two ports breaks: what is on the way is lost, both sides' next words fail. A new one can be
   * made at once.
   */
  breakLink(a: MemPort, b: MemPort): void {
    const lanes = [this.#laneOf(a, b), this.#laneOf(b, a)];
    for (let i = this.steps.length - 1; i >= 0; i--)
      if (lanes.includes((this.steps[i] as Step).lane)) this.steps.splice(i, 1);
    this.#break(a, b);
    this.#break(b, a);
    for (const move of [...this.moves])
      if ((move.from === a && move.to === b) || (move.from === b && move.to === a))
        move.cut(connectionAborted);
  }

  #break(from: MemPort, to: MemPort): void {
    for (const link of from.links) if (link?.port === to) link.broken = true;
    this.#failStuck(to);
  }

  #failStuck(port: MemPort): void {
    for (const fail of this.#stuck.get(port)?.splice(0) ?? []) fail();
  }

  /** Whom a port knows the way to. */
  linkedTo(port: MemPort): MemPort[] {
    return [...new Set(port.links.flatMap((link) => (link === undefined || link.broken ? [] : [link.port])))];
  }

  override remove(port: MemPort): void {
    this.ports.delete(port.name);
    for (const move of [...this.moves])
      if (move.from === port || move.to === port) move.cut(connectionAborted);
    if (this.nature.reportsDeath) for (const other of this.ports.values()) this.#tellOfDeath(other, port);
    this.#failStuck(port);
  }

  #tellOfDeath(other: MemPort, port: MemPort): void {
    for (const [address, link] of other.links.entries())
      if (link?.port === port)
        this.post(`${other.name} is told that ${port.name} is gone`, () => {
          if (other.links[address] === link) other.losePeer(address);
        });
  }

  /** The process of a port is killed: code that goes on using the port is a ghost. */
  kill(port: MemPort): void {
    this.#killed.add(port);
    port.close();
  }

  override misused(port: MemPort, what: string): void {
    if (!this.#killed.has(port)) this.violations.push(`${port.name} ${what}`);
  }
}

function leave(region: MemRegion): void {
  if (--region.users > 0) return;
  const { onReleased } = region;
  region.onReleased = undefined;
  onReleased?.();
}
