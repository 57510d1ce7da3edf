import { fabricError } from "../base/errors/fabric-error.ts";
import type { RpcError } from "../base/errors/rpc-error.ts";
import { ringBytes, ringEntries } from "./completion-ring.ts";
import { Completions } from "./completions.ts";
import { isWildcard, numericHost } from "./host.ts";
import type { Addon, NativeProcess, OpenedPort } from "./libfabric/addon.ts";
import { extentWords, gauges, mostExtents } from "./libfabric/addon.ts";
import { isOfFile, pinRefusal, pinsNoFiles } from "./libfabric/file-memory.ts";
import { requireAddon, requireLibfabric } from "./libfabric/libfabric.ts";
import type { PortDescription } from "./libfabric/port-report.ts";
import { type FabricUrl, formatHostUrl, hasHosts, isNodeScheme, type NativeScheme } from "./libfabric/url.ts";
import { openError } from "./open-error.ts";
import {
  type Absences,
  type Extent,
  nobody,
  type Port,
  type PortGauges,
  type PortLayout,
  type PortSink,
  type RegisteredMemory,
  type Route,
  type SendListener,
  type TransferListener,
  type TransferOp,
  type Vouch,
} from "./port.ts";
import { pinObstacle } from "./rdma/pinned-memory.ts";
import { SendSlots } from "./send-slots.ts";
import type { Target } from "./target.ts";
import { warnIfUnfiltered } from "./unfiltered.ts";

const noLimit = 0xffff_ffff;
const noMemory = 12; // ENOMEM
const noPages = -14; // EFAULT
const notSupported = -95; // EOPNOTSUPP
const cancelled = 125; // ECANCELED
const stillUsed = -16; // EBUSY
/** No address, for the addon: any peer may have the key. */
const anybody = 2 ** 32 - 1;

/**
 * Frames that are worth waiting for, measured with 8 to 256 calls in flight (docs/design/progress.md). Other fabrics
 * use the value of verbs.
 */
const batchFrames: Readonly<Partial<Record<NativeScheme, number>>> = {
  shm: 16,
  tcp: 32,
  verbs: 32,
};
const usualBatchFrames = 32;

/** How many withdrawn regions one call of progress checks. */
const releasesAtOnce = 64;

/** Memory that was withdrawn and is still in use by a peer. */
interface Unreleased {
  readonly index: number;
  readonly onReleased: (() => void) | undefined;
}

/** A port on libfabric. Turns the numbers of the addon into events and errors. */
export class NativePort implements Port {
  readonly scheme: NativeScheme;
  readonly provider: string;
  readonly agent: string;
  readonly url: string;
  readonly slab: Buffer;
  readonly slabView: DataView;
  readonly slotBytes: number;
  readonly batchFrames: number;
  readonly maxTransferBytes: number;
  readonly maxExtents: number;
  readonly immediateBytes: number;
  readonly reportsDeath: boolean;
  readonly revokesKeys: boolean;
  readonly refusesSilently: boolean;
  readonly maxPeers: number;
  readonly isEventDriven = false;
  onWake: () => void = () => {};
  received = 0;
  spinLostUs = 0;
  spinCaught = 0;

  readonly #addon: Addon;
  readonly #opened: OpenedPort;
  readonly #id: number;
  readonly #slots: SendSlots;
  readonly #completions: Completions;
  /**
   * The extents of the next transfer, in a buffer that native code reads. Keys are 64-bit words; all else is written as
   * 32-bit halves.
   */
  readonly #extentWords: BigUint64Array;
  readonly #extentHalves: Uint32Array;
  /** Withdrawn regions that a peer may still use: the peer is stopped, or not yet known to be dead. */
  #unreleased: Unreleased[] = [];
  #registrationsMade = 0;
  #registrationsMadeBytes = 0;
  readonly #receiveSlots: number;
  #closed = false;

  /** Opens an endpoint that listens at `url`. Without a name or port it only connects. */
  static async open(url: FabricUrl, listening: boolean, layout: PortLayout): Promise<NativePort> {
    const addon = url.scheme === "shm" ? requireAddon() : requireLibfabric();
    if (isNodeScheme(url.scheme)) return new NativePort(addon, url, listening, url.host, layout);
    const host = hasHosts(url.scheme) && url.host !== "" ? await numericHost(url.host) : "";
    return new NativePort(addon, url, listening, host, layout);
  }

  private constructor(addon: Addon, url: FabricUrl, listening: boolean, host: string, layout: PortLayout) {
    const { slotBytes, sendSlots, receiveSlots } = layout;
    const slab = new ArrayBuffer((sendSlots + receiveSlots) * slotBytes);
    const ring = new ArrayBuffer(ringBytes);
    const extents = new ArrayBuffer(mostExtents * extentWords * 8);
    const opened = addon.open({
      scheme: url.scheme as NativeScheme,
      host,
      service: url.port,
      name: url.name,
      provider: process.env.CINNABAR_PROVIDER ?? "",
      slab,
      slotBytes,
      sendSlots,
      receiveSlots,
      maxConnections: layout.maxConnections ?? noLimit,
      maxIdleConnectionMs: layout.maxIdleConnectionMs ?? noLimit,
      secured: layout.secured === true,
      ring,
      extents,
      onWake: () => this.onWake(),
    });
    if (opened.failed === true) throw openError(opened, url);
    this.#addon = addon;
    this.#opened = opened;
    this.#id = opened.port;
    this.#extentWords = new BigUint64Array(extents);
    this.#extentHalves = new Uint32Array(extents);
    this.#slots = new SendSlots(sendSlots, slotBytes);
    this.#completions = new Completions(ring, this.#slots, slotBytes);
    this.scheme = url.scheme as NativeScheme;
    this.provider = opened.provider;
    const [major, minor] = opened.providerVersion;
    this.agent =
      opened.version === null
        ? `${opened.provider}/${major}`
        : `libfabric/${opened.version.join(".")} ${opened.provider}/${major}.${minor}`;
    this.url = boundUrl(this.scheme, opened, listening ? url.host : "");
    this.slab = Buffer.from(slab);
    this.slabView = new DataView(slab);
    this.slotBytes = slotBytes;
    this.batchFrames = batchFrames[this.scheme] ?? usualBatchFrames;
    this.maxTransferBytes = opened.maxTransferBytes;
    this.maxExtents = mostExtents;
    this.immediateBytes = opened.immediateBytes;
    this.reportsDeath = opened.reportsDeath;
    this.revokesKeys = opened.revokesKeys;
    this.refusesSilently = opened.refusesSilently;
    this.maxPeers = opened.maxPeers === 0 ? Number.POSITIVE_INFINITY : opened.maxPeers;
    this.#receiveSlots = receiveSlots;
    if (listening && opened.trustsStreams) warnIfUnfiltered(this.url, opened.host);
  }

  route(target: Target): Route {
    if (target.scheme === "shm")
      return { address: this.#addressOf(target.name, 0), replyTo: this.#opened.address };
    if (isNodeScheme(target.scheme)) {
      const raw = target.name !== "" ? new Uint8Array(Buffer.from(target.name, "hex")) : undefined;
      return { address: raw ?? this.#addressOf(target.host, target.port), replyTo: this.#opened.address };
    }
    const replyTo = isWildcard(this.#opened.host)
      ? this.#addressOf(target.from, this.#opened.service)
      : this.#opened.address;
    return { address: this.#addressOf(target.host, target.port), replyTo };
  }

  admit(address: Uint8Array): number {
    return this.#check(this.#addon.admit(this.#id, address), "fi_av_insert");
  }

  processOf(address: number): NativeProcess | undefined {
    return this.#addon.processOf(this.#id, address) ?? undefined;
  }

  /** A guard answers for a peer with a blocked loop, and few bytes are under way before its answer. */
  heard(): number {
    return 0;
  }

  forget(address: number): void {
    this.#completions.afterDelivery(() => {
      if (!this.#closed) this.#addon.forget(this.#id, address);
    });
  }

  vouch(address: number, { mark, message, everyMs, forMs, seal }: Vouch): void {
    // Without it, peers lose this engine while its event loop is blocked.
    const aead = seal?.release();
    if (aead === -1) return;
    this.#addon.vouch(this.#id, address, mark, message, everyMs, forMs, aead);
  }

  unvouch(address: number): void {
    if (!this.#closed) this.#addon.unvouch(this.#id, address);
  }

  absences(): Absences {
    return this.#addon.absences(this.#id);
  }

  takeSlot(held = 0): number {
    return this.#slots.take(held);
  }

  returnSlot(offset: number): void {
    this.#slots.put(offset);
  }

  send(address: number, slot: number, bytes: number, listener: SendListener): void {
    const status = this.#addon.send(this.#id, address, slot, bytes);
    if (status === 0) {
      this.#completions.expectSent(slot, listener);
      return;
    }
    this.#slots.put(slot);
    listener.onSent(status > 0 ? 0 : -status);
  }

  register(
    memory: ArrayBufferLike,
    byteOffset: number,
    byteLength: number,
    access: number,
    holder = anybody,
  ): RegisteredMemory {
    const index = this.#addon.register(this.#id, memory, byteOffset, byteLength, access, holder);
    if (index < 0) throw this.#registerError(index, byteLength, isOfFile(memory));
    this.#registrationsMade++;
    this.#registrationsMadeBytes += byteLength;
    return { index, key: this.#extentWords[0] as bigint, base: this.#extentWords[1] as bigint };
  }

  deregister(index: number, onReleased?: () => void): void {
    if (!this.#closed && this.#addon.deregister(this.#id, index) === stillUsed)
      this.#unreleased.push({ index, onReleased });
    else onReleased?.();
  }

  transfer(
    op: TransferOp,
    address: number,
    extents: readonly Extent[],
    listener: TransferListener,
    notification?: bigint,
  ): void {
    const words = this.#extentWords;
    const halves = this.#extentHalves;
    let at = 0;
    for (const { local, offset, bytes, key, remote } of extents) {
      halves[2 * at] = local.index;
      halves[2 * at + 1] = 0;
      halves[2 * at + 2] = offset;
      halves[2 * at + 3] = offset / 2 ** 32;
      halves[2 * at + 4] = bytes;
      halves[2 * at + 5] = bytes / 2 ** 32;
      words[at + 3] = key;
      words[at + 4] = remote;
      at += extentWords;
    }
    const token = this.#completions.expectTransfer(listener);
    const status =
      op === "read"
        ? this.#addon.read(this.#id, address, extents.length, token)
        : this.#addon.write(this.#id, address, extents.length, token, notification);
    if (status < 0) this.#completions.settleTransfer(token, -status, 0);
  }

  progress(spinUs: number, sink: PortSink): number {
    if (this.#closed) return 0;
    const count = this.#addon.progress(this.#id, spinUs);
    const { ring } = this.#completions;
    this.spinLostUs = ring[2] as number;
    this.spinCaught = ring[3] as number;
    if (this.#unreleased.length > 0) this.#releaseAgain();
    if (count > 0) this.#completions.deliver(count, this, sink);
    return count;
  }

  arm(): boolean {
    if (this.#closed) return false;
    const status = this.#addon.arm(this.#id);
    // Sent messages are no reason to stay awake.
    if (status > 1) this.#completions.deliver(status - 1, this, nobody);
    return status > 0;
  }

  disarm(watches = false): void {
    if (!this.#closed) this.#addon.disarm(this.#id, watches);
  }

  setRef(keepsProcessAlive: boolean): void {
    if (!this.#closed) this.#addon.setRef(this.#id, keepsProcessAlive);
  }

  get busy(): boolean {
    return this.#completions.sends > 0 || this.#completions.transfers > 0 || this.#unreleased.length > 0;
  }

  gauges(): PortGauges {
    const count = (which: number) => (this.#closed ? 0 : this.#addon.gauge(this.#id, which));
    return {
      sends: this.#completions.sends,
      transfers: this.#completions.transfers,
      regions: count(gauges.regions),
      addresses: count(gauges.addresses),
      freeSlots: this.#slots.free,
    };
  }

  describe(): PortDescription {
    const level = (which: number) => (this.#closed ? 0 : this.#addon.gauge(this.#id, which));
    const granted = this.#opened.granted ?? undefined;
    return {
      queues: {
        send: this.#slots.level,
        receive: {
          depth: this.#receiveSlots,
          used: level(gauges.receivesUsed),
          highest: level(gauges.mostReceives),
        },
        completion: {
          depth: ringEntries,
          used: level(gauges.completions),
          highest: level(gauges.mostCompletions),
        },
        waiting: level(gauges.waiting),
      },
      registeredBytes: level(gauges.registeredBytes),
      registrationsMade: this.#registrationsMade,
      registrationsMadeBytes: this.#registrationsMadeBytes,
      granted,
      connections: this.#opened.countsConnections
        ? {
            open: level(gauges.connections),
            refused: level(gauges.turnedAway),
            malformed: level(gauges.malformed),
            evicted: level(gauges.shed),
          }
        : undefined,
    };
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#addon.close(this.#id);
    this.#completions.abandon(cancelled);
    for (const { onReleased } of this.#unreleased) onReleased?.();
    this.#unreleased = [];
  }

  /** Checks some withdrawn regions, in turn: a peer can delay thousands of them for any time. */
  #releaseAgain(): void {
    for (const { index, onReleased } of this.#unreleased.splice(0, releasesAtOnce))
      this.deregister(index, onReleased);
  }

  #addressOf(hostOrName: string, service: number): Uint8Array {
    const address = this.#addon.addressOf(this.#id, hostOrName, service);
    if (address instanceof Uint8Array) return address;
    throw fabricError({ ...address, provider: this.provider });
  }

  #registerError(status: number, bytes: number, isFile: boolean): RpcError {
    const failure = { provider: this.provider, op: "fi_mr_reg", code: status };
    if (isFile && (status === noPages || status === notSupported))
      return pinRefusal(
        fabricError({ ...failure, rpcCode: "unimplemented", message: `fi_mr_reg: ${pinsNoFiles}` }),
      );
    const message = status === -noMemory && this.scheme === "verbs" ? pinObstacle(bytes) : undefined;
    return fabricError({ ...failure, message });
  }

  #check(status: number, op: string): number {
    if (status >= 0) return status;
    throw fabricError({ provider: this.provider, op, code: status });
  }
}

/**
 * The URL at which peers can connect. For fabrics with node and service: an address that only the provider can read.
 */
function boundUrl(scheme: NativeScheme, { address, host, service, name }: OpenedPort, asked: string): string {
  if (scheme === "shm") return `${scheme}://${name}`;
  if (isNodeScheme(scheme) && host === "") return `${scheme}://~${Buffer.from(address).toString("hex")}`;
  return formatHostUrl(scheme, asked === "" ? host : asked, service);
}
