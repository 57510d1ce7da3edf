import { randomBytes } from "node:crypto";
import {
  type AddressInfo,
  connect,
  createServer,
  type ListenOptions,
  type Server,
  type Socket,
} from "node:net";
import { armDetached } from "../../base/time/detached-context.ts";
import { realTimers } from "../../base/time/real-timers.ts";
import { firstParked } from "../completion-ring.ts";
import { assertNetworkAllowed, numericHost } from "../host.ts";
import { cancelled, connectionAborted, InboxPort } from "../inbox-port.ts";
import type { ConnectionCounts, PortDescription } from "../libfabric/port-report.ts";
import type { FabricUrl, SocketScheme } from "../libfabric/url.ts";
import type { Extent, Port, PortLayout, Route, SendListener, TransferOp } from "../port.ts";
import type { Target } from "../target.ts";
import { FrameFault, mostExtents, mostTransferBytes, notificationBytes, version } from "./frame.ts";
import { WriteBuffers } from "./frame-writer.ts";
import { Link, type LinkOwner } from "./link.ts";
import { connectError, listenError, placeOf, provider, returnAddress, urlOf } from "./place.ts";
import { readInPlace, takeOver } from "./read-memory.ts";
import { SocketFile } from "./socket-file.ts";

const timedOut = 110; // ETIMEDOUT
/** Limits of accepted connections before the peer's hello: their number, and the time of each. */
const mostUngreeted = 1024;
const helloMs = 5000;
const longestTimerMs = 2 ** 31 - 1;

/**
 * A port on Node's own sockets, without native code. Each peer that it reaches, and each that reaches it, has one
 * connection. Memory is read and written by the port that has it, on request. docs/design/net.md explains it.
 */
export class NetPort extends InboxPort implements Port, LinkOwner {
  readonly scheme: SocketScheme;
  readonly provider = provider;
  readonly agent = `${provider}/${version}`;
  readonly url: string;
  readonly batchFrames = 32;
  readonly maxTransferBytes = mostTransferBytes;
  readonly maxExtents = mostExtents;
  readonly immediateBytes = notificationBytes;
  readonly reportsDeath = true;
  readonly revokesKeys = true;
  readonly refusesSilently = false;
  readonly maxPeers = Number.POSITIVE_INFINITY;
  readonly isEventDriven = true;
  /** The events of the sockets make progress; the port needs no polling for work. */
  readonly busy = false;

  readonly buffers = new WriteBuffers();
  readonly #server: Server | undefined;
  /** The socket's file, for net+unix. */
  readonly #file: SocketFile | undefined;
  readonly #maxConnections: number;
  readonly #maxIdleMs: number;
  readonly #links = new Set<Link>();
  /** Accepted connections before the peer's hello, oldest first. */
  readonly #ungreeted = new Set<Link>();
  /** Routes that wait for the peer's hello. */
  readonly #dials = new Map<Link, { resolve(route: Route): void; reject(error: Error): void }>();
  /** Connections by the address objects that `route` has returned. */
  readonly #dialed = new WeakMap<Uint8Array, Link>();
  /** Accepted connections, by the return addresses that this port has given them. */
  readonly #accepted = new Map<string, Link>();
  readonly #byIndex: (Link | undefined)[] = [];
  /** Connections with something to read. */
  #readable: Link[] = [];
  #dirty: Link[] = [];
  readonly #freeTokens: number[] = [];
  #tokens = 0;
  turn = 0;
  #keepsAlive = false;
  #malformed = 0;
  #refused = 0;
  #evicted = 0;

  /**
   * Opens a port that listens at `url`.
   * @throws RpcError where it cannot.
   */
  static async listen(url: FabricUrl, layout: PortLayout): Promise<NetPort> {
    assertNetworkAllowed();
    const host = url.scheme === "net" ? await numericHost(url.host) : "";
    const place = placeOf({ ...url, host });
    const { server, file } = await (url.scheme === "net+unix"
      ? SocketFile.listen(url.name, (path) => listening({ path, exclusive: true }))
      : listening(place).then((server) => ({ server, file: undefined }))
    ).catch((error: NodeJS.ErrnoException) => {
      throw listenError(error, urlOf(url));
    });
    const bound = server.address() as AddressInfo | string | null;
    const port = typeof bound === "object" && bound !== null ? bound.port : 0;
    return new NetPort(url.scheme as SocketScheme, urlOf({ ...url, port }), layout, server, file);
  }

  /** Opens a port that only connects. No peer can connect to it. */
  static connecting(scheme: SocketScheme, layout: PortLayout): NetPort {
    const name = randomBytes(8).toString("hex");
    const url = urlOf({ scheme, host: "0.0.0.0", port: 0, name: scheme === "net+unix" ? `/${name}` : name });
    return new NetPort(scheme, url, layout);
  }

  private constructor(
    scheme: SocketScheme,
    url: string,
    layout: PortLayout,
    server?: Server,
    file?: SocketFile,
  ) {
    super(layout);
    this.scheme = scheme;
    this.url = url;
    this.#maxConnections = layout.maxConnections ?? Number.POSITIVE_INFINITY;
    this.#maxIdleMs = Math.min(layout.maxIdleConnectionMs ?? 0, longestTimerMs);
    this.#server = server?.unref();
    this.#file = file;
    server?.on("connection", (socket) => this.#accept(socket));
    // Without a file descriptor the system refuses the connection.
    server?.on("error", () => this.turnAway(++this.#refused, this.#malformed));
  }

  // ---- connections --------------------------------------------------------------------------------------------------

  /** Connects. The route is known when the peer has said hello. */
  route(target: Target, timeoutMs = helloMs): Promise<Route> {
    return new Promise((resolve, reject) => {
      if (this.isClosed) return reject(connectError({ code: "ECANCELED" } as NodeJS.ErrnoException));
      assertNetworkAllowed();
      const place = placeOf(target);
      // A socket keeps the async context in which it was made.
      const inPlace = readInPlace((bytes, memory) => link.onRead(memory, bytes));
      const socket = armDetached(() => connect({ ...place, ...inPlace }));
      const link = this.#add(socket, true, inPlace !== undefined);
      this.#dials.set(link, { resolve, reject });
      this.#limit(link, Math.max(1, Math.min(timeoutMs, longestTimerMs)));
      link.sayHello(new Uint8Array(0));
    });
  }

  #accept(accepted: Socket): void {
    const inPlace = readInPlace((bytes, memory) => link.onRead(memory, bytes));
    const taken = inPlace && takeOver(accepted, inPlace);
    const socket = taken ?? accepted;
    const link = this.#add(socket, false, taken !== undefined);
    this.#ungreeted.add(link);
    this.#limit(link, helloMs);
    const address = returnAddress(socket);
    this.#accepted.set(nameOf(address), link);
    socket.once("close", () => this.#accepted.delete(nameOf(address)));
    link.sayHello(address);
    if (this.#ungreeted.size > mostUngreeted) this.#turnOut(first(this.#ungreeted));
    if (this.#links.size > this.#maxConnections)
      this.#turnOut([...this.#links].find((other) => !other.isDialed && other.addresses.size === 0) ?? link);
  }

  #add(socket: Socket, isDialed: boolean, readsInPlace = false): Link {
    const link = new Link(this, socket, isDialed, readsInPlace);
    this.#links.add(link);
    if (!this.#keepsAlive && !isDialed) socket.unref();
    socket.once("close", () => realTimers.clearTimeout(link.timer));
    return link;
  }

  /** Ends the connection after `ms` if it has no session then, whatever bytes have come; 0: never. */
  #limit(link: Link, ms: number): void {
    realTimers.clearTimeout(link.timer);
    if (ms === 0 || link.isOver) return;
    const end = () => {
      const { isGreeted } = link;
      // Timers run before sockets are read: a hello that came while this thread was absent counts.
      realTimers.setImmediate(() => {
        if (link.isGreeted === isGreeted) this.#onTimeout(link);
      });
    };
    link.timer = armDetached(realTimers.setTimeout, end, ms).unref();
  }

  #onTimeout(link: Link): void {
    if (link.isOver || link.addresses.size > 0) return;
    link.error ??= Object.assign(new Error("the connection was not answered"), { code: "ETIMEDOUT" });
    if (link.isDialed) this.#lose(link, timedOut);
    else this.#turnOut(link);
  }

  #turnOut(link: Link): void {
    this.#evicted++;
    this.#lose(link, cancelled);
  }

  onHello(link: Link, address: Buffer): void {
    this.#ungreeted.delete(link);
    const dial = this.#dials.get(link);
    if (dial === undefined) return this.#limit(link, this.#maxIdleMs);
    this.#dials.delete(link);
    // Until it is admitted.
    this.#limit(link, helloMs);
    if (!this.#keepsAlive) link.socket.unref();
    const route = { address: new Uint8Array(0), replyTo: Uint8Array.from(address) };
    this.#dialed.set(route.address, link);
    dial.resolve(route);
  }

  onUnborn(link: Link): void {
    this.#lose(link, connectionAborted);
  }

  /** A connection has ended, or ends now. Its users are notified. */
  #lose(link: Link, status: number): void {
    if (!this.#links.delete(link)) return;
    this.#ungreeted.delete(link);
    if (link.error instanceof FrameFault) this.turnAway(this.#refused, ++this.#malformed);
    link.cut(status);
    this.#dials.get(link)?.reject(connectError(link.error));
    this.#dials.delete(link);
    for (const address of link.addresses) this.losePeer(address);
  }

  admit(address: Uint8Array): number {
    const link = this.#dialed.get(address) ?? this.#accepted.get(nameOf(address));
    if (link === undefined || link.isOver) throw connectError(link?.error);
    this.#limit(link, 0);
    let index = this.#byIndex.indexOf(undefined);
    if (index < 0) index = this.#byIndex.length;
    this.#byIndex[index] = link;
    link.addresses.add(index);
    return index;
  }

  heard(address: number): number {
    const link = this.#byIndex[address];
    if (link === undefined) return 0;
    // Bytes that wait here have come, though this side is too busy to read more.
    return link.unreadBytes > 0 ? ++link.timesHeard : link.timesHeard;
  }

  forget(address: number): void {
    this.completions.afterDelivery(() => {
      const link = this.#byIndex[address];
      this.#byIndex[address] = undefined;
      this.dropPeer(address);
      if (link === undefined) return;
      link.forget(address, cancelled);
      if (link.addresses.size > 0 || link.isOver) return;
      if (!link.isDialed) return this.#limit(link, this.#maxIdleMs);
      this.#links.delete(link);
      link.close(cancelled);
    });
  }

  // ---- messages -----------------------------------------------------------------------------------------------------

  send(address: number, slot: number, bytes: number, listener: SendListener): void {
    const link = this.#byIndex[address];
    if (this.isClosed || link === undefined || link.isOver || !link.send(address, slot, bytes))
      return this.#wait(link, slot, listener);
    this.sendSlots.put(slot);
    listener.onSent(0);
  }

  #wait(link: Link | undefined, slot: number, listener: SendListener): void {
    if (this.isClosed) {
      this.sendSlots.put(slot);
      return listener.onSent(cancelled);
    }
    this.completions.expectSent(slot, listener);
    if (link === undefined || link.isOver) this.endSend(slot, connectionAborted);
  }

  /** Parks a message when more than half of the slots are taken: peers that take no messages must not keep them. */
  park(slot: number): number {
    if (this.sendSlots.free * 2 > this.sendSlots.count) return -1;
    const token = this.#freeTokens.pop() ?? firstParked + this.#tokens++;
    this.parkSend(slot, token);
    return token;
  }

  override endSend(token: number, status: number): void {
    if (token >= firstParked) this.#freeTokens.push(token);
    super.endSend(token, status);
  }

  onReadable(link: Link): void {
    if (!link.isListed) {
      link.isListed = true;
      this.hasMore = true;
      this.#readable.push(link);
    }
    this.wakeNow();
  }

  /** Reads the connections by turns, until the inbox is full. */
  protected override gather(): void {
    // The inbox is delivered now: what the connections have brought since the turn before, and what is read here.
    this.turn++;
    if (this.#readable.length === 0) return;
    const readable = this.#readable;
    this.#readable = [];
    for (const link of readable) {
      link.isListed = false;
      if (!link.isOver && link.unreadBytes > 0) link.read();
      if (link.unreadBytes > 0 && !link.isListed) {
        link.isListed = true;
        this.#readable.push(link);
      } else if (link.hasEnded && link.unreadBytes === 0) this.#lose(link, connectionAborted);
    }
    this.turn++;
    this.hasMore = this.#readable.length > 0;
  }

  /** All frames of a turn leave together, at the end of the current turn. */
  flushSoon(link: Link): void {
    if (link.isDirty) return;
    link.isDirty = true;
    this.#dirty.push(link);
    if (this.#dirty.length === 1) realTimers.nextTick(this.#flush);
  }

  readonly #flush = (): void => {
    const dirty = this.#dirty;
    this.#dirty = [];
    for (const link of dirty) {
      link.isDirty = false;
      if (!link.isOver) link.writer.flush();
    }
  };

  // ---- memory -------------------------------------------------------------------------------------------------------

  protected override nextKey(): bigint {
    return randomBytes(8).readBigUInt64LE();
  }

  /** No operation holds the memory: pieces are copied when they are written and when they arrive. */
  deregister(index: number, onReleased?: () => void): void {
    this.memory.delete(index);
    onReleased?.();
  }

  protected override move(
    op: TransferOp,
    address: number,
    extents: readonly Extent[],
    token: number,
    notification: bigint | undefined,
  ): void {
    const link = this.#byIndex[address];
    if (link === undefined || link.isOver) return this.endTransfer(token, connectionAborted, 0);
    link.transfers.ask(op, address, token, extents, notification);
    link.goOn();
  }

  // ---- everything else ----------------------------------------------------------------------------------------------

  setRef(keepsProcessAlive: boolean): void {
    this.#keepsAlive = keepsProcessAlive;
    for (const each of [this.#server, ...[...this.#links].map(({ socket }) => socket)])
      if (keepsProcessAlive) each?.ref();
      else each?.unref();
  }

  protected override get addresses(): number {
    return this.#byIndex.filter((link) => link !== undefined).length;
  }

  protected override get waitingWork(): number {
    let waiting = 0;
    for (const link of this.#links) waiting += link.waiting;
    return waiting;
  }

  override describe(): PortDescription {
    return { ...super.describe(), connections: this.#counts() };
  }

  #counts(): ConnectionCounts {
    return {
      open: this.#links.size,
      refused: this.#refused,
      malformed: this.#malformed,
      evicted: this.#evicted,
    };
  }

  close(): void {
    if (this.isClosed) return;
    this.isClosed = true;
    this.#file?.remove();
    this.#server?.close();
    for (const link of this.#links)
      if (link.isGreeted) link.close(cancelled);
      else link.cut(cancelled);
    for (const { reject } of this.#dials.values())
      reject(connectError({ code: "ECANCELED" } as NodeJS.ErrnoException));
    this.#links.clear();
    this.#dials.clear();
    this.abandon(cancelled);
  }
}

function listening(place: ListenOptions): Promise<Server> {
  return new Promise((resolve, reject) => {
    const server = armDetached(() => createServer());
    server.once("error", reject);
    server.listen(place, () => {
      server.off("error", reject);
      resolve(server);
    });
  });
}

const nameOf = (address: Uint8Array): string => Buffer.from(address).toString("latin1");
const first = <T>(set: ReadonlySet<T>): T => set.values().next().value as T;
