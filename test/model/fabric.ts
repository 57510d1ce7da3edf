import { fabricError } from "../../src/errors/fabric-error.ts";
import { Completions } from "../../src/fabric/completions.ts";
import {
  access,
  type Extent,
  noAbsences,
  type Port,
  type PortGauges,
  type PortSink,
  type RegisteredMemory,
  type Route,
  type SendOwner,
  type TransferOp,
  type TransferOwner,
} from "../../src/fabric/port.ts";
import { plainDescription } from "../../src/fabric/port-queues.ts";
import { appendEntry, completion, ringBytes, ringEntries } from "../../src/fabric/ring.ts";
import { SendSlots } from "../../src/fabric/send-slots.ts";
import type { Target } from "../../src/fabric/target.ts";

const connectionRefused = 111;
const connectionAborted = 103;
const inputOutput = 5;
const cancelled = 125;
const keyRejected = 266;
const notPermitted = 13;
const outOfRange = 34;

const slotBytes = 4096;
// Few, so that they run out.
const sendSlots = 8;
const receiveSlots = 12;
/** The most bytes on the way in one direction: what a socket or a queue holds. */
const maxOnTheWay = 24;

/** What a provider promises of its memory and its peers. */
export interface Nature {
  readonly reportsDeath: boolean;
  readonly revokesKeys: boolean;
  readonly immediateBytes: number;
}

/** What is under way and happens when the schedule says so. */
export interface Step {
  readonly what: string;
  /** Steps of one lane happen in their order; those without a lane in any. */
  readonly lane: string;
  /** A message, which a faulty fabric may lose, repeat or overtake. */
  readonly isMessage: boolean;
  readonly run: (status: number) => void;
}

interface Registered {
  readonly bytes: Uint8Array;
  readonly rights: number;
  readonly key: bigint;
  /** Transfers of peers that are in the middle of it. */
  users: number;
  onReleased: (() => void) | undefined;
}

interface Entry {
  readonly kind: number;
  readonly status: number;
  readonly token: number;
  readonly high?: number;
  readonly bytes?: Uint8Array;
  readonly moved?: number;
}

/** A transfer from its posting to its completion. */
interface Move {
  readonly from: ModelPort;
  readonly to: ModelPort | undefined;
  readonly address: number;
  /** Ends it now, as a connection that breaks does. */
  readonly cut: (status: number) => void;
}

/**
 * A fabric on which nothing happens by itself: each delivery, each transfer's beginning and its end, each completion and each report of a death is a step that waits to be taken.
 */
export class ModelFabric {
  readonly nature: Nature;
  readonly steps: Step[] = [];
  readonly moves = new Set<Move>();
  readonly ports = new Map<string, ModelPort>();
  /** What no engine may ever do. */
  readonly violations: string[] = [];
  #names = 0;
  #keys = 0n;

  constructor(nature: Nature) {
    this.nature = nature;
  }

  open(name: string): ModelPort {
    const port = new ModelPort(this, name === "" ? `anonymous.${++this.#names}` : name);
    this.ports.set(port.name, port);
    return port;
  }

  nextKey(): bigint {
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

  onTheWay(lane: string): number {
    return this.steps.reduce((count, step) => count + (step.lane === lane ? 1 : 0), 0);
  }

  /** The connection between two ports breaks: what is on the way is lost, both sides' next words fail. A new one can be made at once. */
  breakLink(a: ModelPort, b: ModelPort): void {
    const lanes = [laneOf(a, b), laneOf(b, a)];
    for (let i = this.steps.length - 1; i >= 0; i--)
      if (lanes.includes((this.steps[i] as Step).lane)) this.steps.splice(i, 1);
    a.onBroken(b);
    b.onBroken(a);
    for (const move of [...this.moves])
      if ((move.from === a && move.to === b) || (move.from === b && move.to === a))
        move.cut(connectionAborted);
  }

  closed(port: ModelPort): void {
    if (this.ports.get(port.name) === port) this.ports.delete(port.name);
    for (const move of [...this.moves])
      if (move.from === port || move.to === port) move.cut(connectionAborted);
    for (const other of this.ports.values()) other.onOtherClosed(port);
  }
}

export const laneOf = (from: ModelPort, to: ModelPort): string => `${from.id}>${to.id}`;

let ids = 0;

export class ModelPort implements Port {
  readonly scheme = "mem";
  readonly provider = "model";
  readonly agent = "model/1.0";
  readonly batchFrames = 64;
  readonly maxTransferBytes = 2 ** 32 - 1;
  readonly maxExtents = 4;
  readonly slotBytes = slotBytes;
  readonly immediateBytes: number;
  readonly reportsDeath: boolean;
  readonly revokesKeys: boolean;
  readonly refusesSilently: boolean;
  readonly maxPeers = Number.POSITIVE_INFINITY;
  readonly url: string;
  readonly slab: Buffer;
  readonly slabView: DataView;
  readonly name: string;
  readonly id: number = ++ids;
  onWake: () => void = () => {};

  readonly #fabric: ModelFabric;
  readonly #slots = new SendSlots(sendSlots, slotBytes);
  readonly #completions = new Completions(new ArrayBuffer(ringBytes), this.#slots, slotBytes);
  readonly #receiveSlots: number[] = [];
  #delivered: number[] = [];
  #inbox: Entry[] = [];
  readonly #peers: ({ readonly port: ModelPort; broken: boolean } | undefined)[] = [];
  readonly #regions: (Registered | undefined)[] = [];
  readonly #byKey = new Map<bigint, Registered>();
  #armed = false;
  #closed = false;
  #killed = false;

  constructor(fabric: ModelFabric, name: string) {
    this.#fabric = fabric;
    this.name = name;
    this.url = `mem://${name}`;
    ({
      reportsDeath: this.reportsDeath,
      revokesKeys: this.revokesKeys,
      immediateBytes: this.immediateBytes,
    } = fabric.nature);
    this.refusesSilently = !this.reportsDeath;
    const slab = new ArrayBuffer((sendSlots + receiveSlots) * slotBytes);
    this.slab = Buffer.from(slab);
    this.slabView = new DataView(slab);
    for (let i = receiveSlots - 1; i >= 0; i--) this.#receiveSlots.push((sendSlots + i) * slotBytes);
  }

  get closed(): boolean {
    return this.#closed;
  }

  route(target: Target): Route {
    return { address: Buffer.from(target.name), replyTo: Buffer.from(this.name) };
  }

  admit(address: Uint8Array): number {
    const name = Buffer.from(address).toString("latin1");
    const port = this.#fabric.ports.get(name);
    if (port === undefined) {
      const message = `nobody listens at mem://${name}`;
      throw fabricError({ provider: "model", op: "admit", code: connectionRefused, message });
    }
    let index = this.#peers.indexOf(undefined);
    if (index < 0) index = this.#peers.length;
    this.#peers[index] = { port, broken: false };
    return index;
  }

  forget(address: number): void {
    this.#completions.afterDelivery(() => {
      if (this.#peers[address] === undefined && !this.#closed)
        this.#fabric.violations.push(`${this.name} forgets address ${address} twice`);
      this.#peers[address] = undefined;
      this.#inbox = this.#inbox.filter(
        ({ kind, token }) => kind !== completion.peerGone || token !== address,
      );
    });
  }

  takeSlot(held = 0): number {
    return this.#slots.take(held);
  }

  returnSlot(offset: number): void {
    this.#slots.put(offset);
  }

  send(address: number, slot: number, bytes: number, owner: SendOwner): void {
    const peer = this.#peers[address];
    if (this.#closed) {
      if (!this.#killed) this.#fabric.violations.push(`${this.name} sends after its close`);
      this.#slots.put(slot);
      return owner.onSent(cancelled);
    }
    this.#completions.expectSent(slot, owner);
    const sent = (status: number) => this.#arrive({ kind: completion.sent, status, token: slot });
    if (peer === undefined || peer.broken || peer.port.closed) {
      this.#fabric.post(`${this.name} cannot send`, () => sent(connectionAborted));
      return;
    }
    const { port } = peer;
    const lane = laneOf(this, port);
    const message = Uint8Array.prototype.slice.call(this.slab, slot, slot + bytes);
    let left = false;
    const leave = (status: number) => {
      if (left) return;
      left = true;
      // Where keys outlive their loans, a message that cannot be sent means that the connection is gone, and with it all that was under way on it.
      if (status !== 0 && !this.revokesKeys) this.#fabric.breakLink(this, port);
      sent(status);
    };
    // A peer that takes nothing fills the way to it: then the message keeps its slot.
    const isFull = this.#fabric.onTheWay(lane) >= maxOnTheWay;
    this.#fabric.post(
      `${this.name}>${port.name} ${bytes} bytes`,
      () => {
        port.#arrive({ kind: completion.message, status: 0, token: 0, bytes: message });
        if (isFull) leave(0);
      },
      lane,
      true,
    );
    if (isFull) peer.port.#stuck.push(() => leave(connectionAborted));
    else this.#fabric.post(`${this.name} has sent`, leave);
  }

  /** Sends that wait for this port to take what came before: they fail with it. */
  #stuck: (() => void)[] = [];

  register(
    memory: ArrayBufferLike,
    byteOffset: number,
    byteLength: number,
    rights: number,
  ): RegisteredMemory {
    const bytes = new Uint8Array(memory, byteOffset, byteLength);
    const region = { bytes, rights, key: this.#fabric.nextKey(), users: 0, onReleased: undefined };
    let index = this.#regions.indexOf(undefined);
    if (index < 0) index = this.#regions.length;
    this.#regions[index] = region;
    this.#byKey.set(region.key, region);
    return { index, key: region.key, base: 0n };
  }

  deregister(index: number, onReleased?: () => void): void {
    const region = this.#regions[index];
    if (region === undefined) {
      if (!this.#closed) this.#fabric.violations.push(`${this.name} deregisters region ${index} twice`);
      return onReleased?.();
    }
    this.#regions[index] = undefined;
    this.#byKey.delete(region.key);
    if (region.users > 0 && this.revokesKeys) region.onReleased = onReleased;
    else onReleased?.();
  }

  transfer(
    op: TransferOp,
    address: number,
    extents: readonly Extent[],
    owner: TransferOwner,
    notice?: bigint,
  ): void {
    if (this.#closed) return owner.onTransferred(cancelled, 0);
    const fabric = this.#fabric;
    const peer = this.#peers[address];
    const to = peer?.port;
    const token = this.#completions.expectTransfer(owner);
    let used: Registered[] = [];
    const end = (status: number, moved: number) => {
      if (!fabric.moves.delete(move)) return;
      for (const region of used) leave(region);
      used = [];
      this.#arrive({ kind: completion.transfer, status, token, moved });
    };
    const move: Move = { from: this, to: peer?.port, address, cut: (status) => end(status, 0) };
    fabric.moves.add(move);
    const what = `${op} ${token} by ${this.name}`;
    const begin = () => {
      if (!fabric.moves.has(move)) return;
      const isLost = peer === undefined || peer.broken || peer.port.closed;
      let status = isLost ? connectionAborted : 0;
      for (const extent of extents) {
        if (status !== 0) break;
        const region = (peer as { port: ModelPort }).port.#byKey.get(extent.key);
        status = refusal(op, region, extent);
        if (status === 0) used.push(enter(region as Registered));
      }
      if (status !== 0) return end(status, 0);
      fabric.post(`${what} ends`, (fault) => finish(fault));
    };
    const finish = (fault: number) => {
      if (!fabric.moves.has(move)) return;
      let moved = 0;
      // One that fails may have moved anything from nothing to everything.
      for (const [index, extent] of extents.entries()) {
        this.#copy(op, extent, used[index] as Registered);
        moved += extent.bytes;
      }
      if (notice !== undefined && fault === 0 && to !== undefined) {
        const [high, low] = [Number(notice >> 32n), Number(notice & 0xffff_ffffn)];
        to.#arrive({ kind: completion.notice, status: 0, token: low, high, moved });
      }
      end(fault === 0 ? 0 : inputOutput, fault === 0 ? moved : 0);
    };
    fabric.post(`${what} begins`, begin);
  }

  #copy(op: TransferOp, { local, offset, bytes, remote }: Extent, { bytes: there }: Registered): void {
    const here = this.#regions[local.index];
    if (here?.key !== local.key) {
      this.#fabric.violations.push(`${this.name} gave memory back under a transfer of its own`);
      return;
    }
    const mine = here.bytes.subarray(offset, offset + bytes);
    const its = there.subarray(Number(remote), Number(remote) + bytes);
    if (op === "read") mine.set(its);
    else its.set(mine);
  }

  progress(_spinUs: number, sink: PortSink): number {
    if (this.#closed) return 0;
    for (const slot of this.#delivered) this.#receiveSlots.push(slot);
    this.#delivered = [];
    let count = 0;
    while (count < this.#inbox.length && count < ringEntries && this.#publish(this.#inbox[count] as Entry))
      count++;
    if (count === 0) return 0;
    this.#inbox.splice(0, count);
    this.#completions.deliver(count, this, sink);
    return count;
  }

  #publish({ kind, status, token, high = 0, bytes, moved }: Entry): boolean {
    let slot = token;
    if (bytes !== undefined) {
      const free = this.#receiveSlots.pop();
      if (free === undefined) return false;
      this.slab.set(bytes, free);
      this.#delivered.push(free);
      slot = free;
    }
    appendEntry(this.#completions.ring, kind, status, slot, moved ?? bytes?.byteLength ?? 0, high);
    return true;
  }

  #arrive(entry: Entry): void {
    if (this.#closed) return;
    this.#inbox.push(entry);
    if (!this.#armed) return;
    this.#armed = false;
    setImmediate(() => this.onWake());
  }

  readonly spinLostUs = 0;
  readonly spinCaught = 0;

  arm(): boolean {
    if (this.#closed || this.#inbox.length > 0) return false;
    this.#armed = true;
    return true;
  }

  disarm(): void {
    this.#armed = false;
  }

  setRef(): void {}
  vouch(): void {}
  unvouch(): void {}
  absences = () => noAbsences;

  get busy(): boolean {
    return this.#completions.sends > 0 || this.#inbox.length > 0;
  }

  readonly describe = () => plainDescription;
  gauges(): PortGauges {
    return {
      sends: this.#completions.sends,
      transfers: this.#completions.transfers,
      regions: this.#byKey.size,
      addresses: this.#peers.filter((peer) => peer !== undefined).length,
      freeSlots: this.#slots.free,
    };
  }

  get whole(): boolean {
    return this.#slots.free === sendSlots;
  }

  /** Whom it knows the way to. */
  get linked(): ModelPort[] {
    return [
      ...new Set(this.#peers.flatMap((peer) => (peer === undefined || peer.broken ? [] : [peer.port]))),
    ];
  }

  onBroken(other: ModelPort): void {
    for (const peer of this.#peers) if (peer?.port === other) peer.broken = true;
    for (const fail of other.#stuck.splice(0)) fail();
  }

  onOtherClosed(other: ModelPort): void {
    if (!this.reportsDeath) return;
    this.#peers.forEach((peer, index) => {
      if (peer?.port !== other) return;
      this.#fabric.post(`${this.name} is told that ${other.name} is gone`, () => {
        if (this.#peers[index] === peer)
          this.#arrive({ kind: completion.peerGone, status: connectionAborted, token: index });
      });
    });
  }

  /** Its process is killed: whoever goes on using it is a ghost. */
  kill(): void {
    this.#killed = true;
    this.close();
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#inbox = [];
    this.#fabric.closed(this);
    for (const fail of this.#stuck.splice(0)) fail();
    this.#completions.abandon(cancelled);
  }
}

function refusal(op: TransferOp, region: Registered | undefined, { remote, bytes }: Extent): number {
  if (region === undefined) return keyRejected;
  if ((region.rights & (op === "read" ? access.remoteRead : access.remoteWrite)) === 0) return notPermitted;
  return Number(remote) + bytes > region.bytes.byteLength ? outOfRange : 0;
}

function enter(region: Registered): Registered {
  region.users++;
  return region;
}

function leave(region: Registered): void {
  if (--region.users > 0) return;
  const { onReleased } = region;
  region.onReleased = undefined;
  onReleased?.();
}
