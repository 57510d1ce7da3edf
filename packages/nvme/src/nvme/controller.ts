import { randomBytes, randomInt } from "node:crypto";
import type { ControllerAuthentication } from "../authentication/controller-side.ts";
import type { Ends } from "../authentication/responses.ts";
import type { Places } from "../socket/connection-bounds.ts";
import type { Pace } from "../socket/pace.ts";
import {
  accessChanged,
  accessLogPage,
  admin,
  authenticationWanted,
  type Command,
  changedLogPage,
  discoveryNqn,
  fabrics,
  fabricsOpcode,
  namespacesChanged,
} from "./command.ts";
import {
  accessEvents,
  accessLog,
  activeNamespaces,
  type ControllerInstance,
  changedLog,
  discoveryLog,
  healthLog,
  identifyController,
  identifyNamespace,
  maxQueueEntries,
  maxTransferBytes,
  namespaceDescriptors,
  namespaceEvents,
  type Place,
  type SubsystemFacts,
  type TransportFacts,
  version,
} from "./identify.ts";
import { Notice } from "./notice.ts";
import { type Completion, type Status, status } from "./status.ts";

/** A longer timer would fire at once. KATO has 32 bits, but a silence of 24 days ends a controller in any case. */
const longestTimerMs = 2 ** 31 - 1;
/** RAE, a bit of Get Log Page: the event stays, as if the log had not been read. */
const keepsEvent = 1 << 15;
/** Events that a host may wait for at the same time. */
const maxEventRequests = 4;

const property = { capabilities: 0x00, version: 0x08, configuration: 0x14, status: 0x1c } as const;
const feature = { writeCache: 0x06, queues: 0x07, events: 0x0b, keepAlive: 0x0f } as const;

/** A queue of a controller, as its transport has it. */
export interface Queue {
  readonly facts: TransportFacts;
  /** The address that the host has reached. Undefined if the discovery service does not list such addresses. */
  readonly place?: Place | undefined;
  /**
   * The host and the subsystem that the key of its TLS belongs to. `none`: the connection has no TLS, at a target whose
   * hosts have keys.
   */
  readonly tls?: Ends | "none" | undefined;
  /** The places of its server. Each connected queue takes one. */
  readonly places: Places;
  /** Takes a place for this queue. False: all are taken, or the queue has ended. */
  admit(): boolean;
  /** Ends the connection at once. Commands that the device has not begun are never begun. */
  abort(): void;
  /** Resolves when the device has nothing under way for the queue. */
  readonly settled: Promise<void>;
}

/** The outcome of a Connect: the controller and the number of the queue, or the refusal. */
export type Connected = Admitted | { readonly refused: Completion };

/** A queue that is connected. */
export interface Admitted {
  readonly controller: Controller;
  readonly queueId: number;
  readonly entries: number;
  /** The authentication that the host must complete first. Undefined if no proof is required. */
  readonly authentication?: ControllerAuthentication | undefined;
}

/** The answer to a Connect that is not refused. */
export const admittance = ({ controller, authentication }: Admitted): Completion => ({
  status: status.success,
  result: BigInt(controller.id | (authentication === undefined ? 0 : authenticationWanted.plain)),
});

/** The limit of open commands until the host has proved its identity: such a host sends one at a time. */
export const unprovenCommands = 4;

/** The host of a controller. */
export interface HostFacts {
  readonly nqn: string;
  /** 16 bytes in hexadecimal digits. */
  readonly id: string;
}

/** The controllers of one target. A host may ask one of its controllers to end another. */
export interface Controllers {
  /** 32 bits by chance. They are in the instance of each controller, so that a target recognizes its own. */
  readonly target: number;
  readonly all: Iterable<Controller>;
}

/** What the discovery service reports to a host. */
export interface Discovery {
  /** The addresses where the host finds each subsystem. */
  readonly places: readonly Place[];
  readonly nqns: readonly string[];
}

/** An association of a host with a subsystem: an admin queue and I/O queues. It ends as a whole. */
export class Controller {
  readonly id: number;
  readonly host: HostFacts;
  readonly subsystem: SubsystemFacts;
  /** The rate of its host, over all controllers. Undefined without limits. */
  readonly pace: Pace | undefined;
  /** Resolves when the controller has ended and no device has work under way for it. */
  readonly ended: Promise<void>;
  readonly #discovery: Discovery;
  readonly #family: Controllers;
  readonly #instance: ControllerInstance;
  readonly #facts: TransportFacts;
  readonly #queues = new Map<number, Queue>();
  /** I/O queues whose hosts have not proved that they are this one. They have no number yet. */
  readonly #unproven = new Set<Queue>();
  readonly #maxIoQueues: number;
  readonly #places: Places;
  /** Places that are kept for I/O queues of the host, until they connect or the time for that is over. */
  #kept = 0;
  #keeping: NodeJS.Timeout | undefined;
  #markEnded = () => {};
  #isEnded = false;
  #configuration = 0;
  #status = 0;
  #events = 0;
  #keepAliveMs: number;
  #keepAlive: NodeJS.Timeout | undefined;
  /** When the host's last command for the admin queue came. */
  #heardAtMs = performance.now();
  readonly #accessNotice = new Notice(accessEvents, accessChanged);
  readonly #namespaceNotice = new Notice(namespaceEvents, namespacesChanged);
  /** The namespaces that have changed since the host has read their log. */
  readonly #changed = new Set<number>();
  /** The next read of the clock. */
  #look: Promise<boolean> | undefined;
  readonly #eventRequests = new Map<number, (completion: Completion) => void>();

  constructor(
    id: number,
    host: HostFacts,
    subsystem: SubsystemFacts,
    discovery: Discovery,
    {
      keepAliveMs,
      adminQueue,
      maxIoQueues,
      family = alone,
      pace,
    }: {
      readonly keepAliveMs: number;
      readonly adminQueue: Queue;
      readonly maxIoQueues: number;
      readonly family?: Controllers;
      readonly pace?: Pace | undefined;
    },
  ) {
    this.id = id;
    this.host = host;
    this.pace = pace;
    this.subsystem = subsystem;
    this.#discovery = discovery;
    this.#family = family;
    this.#instance = newInstance(id, family);
    this.ended = new Promise((resolve) => (this.#markEnded = resolve));
    this.#queues.set(0, adminQueue);
    this.#facts = adminQueue.facts;
    this.#places = adminQueue.places;
    this.#maxIoQueues = maxIoQueues;
    this.#keepAliveMs = keepAliveMs;
    this.#armKeepAlive();
  }

  get isEnded(): boolean {
    return this.#isEnded;
  }

  /** I/O queues that are connected. */
  get ioQueues(): number {
    return this.#queues.size - (this.#queues.has(0) ? 1 : 0);
  }

  /** The host has enabled the controller, so that I/O queues may connect. */
  get isReady(): boolean {
    return !this.#isEnded && (this.#status & 1) !== 0;
  }

  /**
   * Whether commands may still be executed. A process that was stopped reads old commands before its timers fire. So
   * this checks the clock, and ends a controller whose keep-alive time is over.
   */
  checkAlive(): boolean {
    if (this.#keepAliveMs > 0 && performance.now() - this.#heardAtMs >= this.#keepAliveMs) this.end();
    return !this.#isEnded;
  }

  /** Notifies the host that the access to a namespace has changed, once until the host has read the log. */
  accessChanged(): void {
    this.#accessNotice.change();
    this.#notify();
  }

  /** Notifies the host that namespaces have another size, once until the host has read the log. */
  namespacesChanged(nsids: readonly number[]): void {
    for (const nsid of nsids) this.#changed.add(nsid);
    this.#namespaceNotice.change();
    this.#notify();
  }

  /**
   * As `checkAlive`, for commands that are about to begin. Reading the clock may be a system call, so one read serves
   * all commands that have come by then. They begin right after it.
   */
  mayBegin(): Promise<boolean> | boolean {
    if (this.#keepAliveMs === 0) return !this.#isEnded;
    this.#look ??= new Promise((resolve) => {
      process.nextTick(() => {
        this.#look = undefined;
        resolve(this.checkAlive());
      });
    });
    return this.#look;
  }

  /**
   * Keeps places for I/O queues that the host may connect, so many in all as far as there are places. Gives how many
   * are kept. A host that connects no queue for a while does not keep places from others.
   */
  keepPlaces(count: number): number {
    clearTimeout(this.#keeping);
    if (count > this.#kept && !this.#isEnded) this.#kept += this.#places.take(count - this.#kept);
    if (count < this.#kept) {
      this.#places.giveBack(this.#kept - count);
      this.#kept = count;
    }
    if (this.#kept > 0) this.#keeping = setTimeout(() => this.keepPlaces(0), this.#places.keptMs);
    return this.#kept;
  }

  /**
   * Takes an I/O queue. Gives the status of a refusal: the number is in use or beyond the limit, or there is no place.
   *
   * @param proved resolves when the host has proved its identity. Until then the number stays free for another host.
   */
  add(queueId: number, queue: Queue, proved?: Promise<void>): Status | undefined {
    if (queueId > this.#maxIoQueues || this.#queues.has(queueId)) return status.connectParameters;
    const hasKept = this.#kept > 0 && queue.places === this.#places;
    if (proved !== undefined) {
      if (!hasKept && queue.places.free === 0) return status.controllerBusy;
      this.#unproven.add(queue);
      void queue.settled.then(() => this.#unproven.delete(queue));
      void proved.then(() => {
        if (!this.#unproven.delete(queue) || !this.isReady || this.add(queueId, queue)) queue.abort();
      });
      return undefined;
    }
    if (hasKept) this.keepPlaces(this.#kept - 1);
    if (!queue.admit()) return status.controllerBusy;
    this.#queues.set(queueId, queue);
    void queue.settled.then(() => {
      if (this.#queues.get(queueId) === queue) this.#queues.delete(queueId);
    });
    return undefined;
  }

  /** Ends every queue. A command that a device has not begun is not executed. */
  end(): void {
    if (this.#isEnded) return;
    this.#isEnded = true;
    clearTimeout(this.#keepAlive);
    this.keepPlaces(0);
    for (const waiting of this.#eventRequests.values()) waiting({ status: status.abortRequested });
    this.#eventRequests.clear();
    const queues = [...this.#queues.values(), ...this.#unproven];
    for (const queue of queues) queue.abort();
    void Promise.all(queues.map(({ settled }) => settled)).then(this.#markEnded);
  }

  /** The host has sent a command of the admin queue. */
  hear(): void {
    this.#heardAtMs = performance.now();
    this.#keepAlive?.refresh();
  }

  /** Executes a command of the admin queue, other than Connect and those of authentication. */
  async execute(command: Command): Promise<Completion> {
    this.hear();
    const { opcode, entry } = command;
    if (opcode === fabricsOpcode) return this.#property(command);
    switch (opcode) {
      case admin.keepAlive:
        return { status: status.success };
      case admin.identify:
        return this.#identify(command);
      case admin.getLogPage:
        return this.#log(command);
      case admin.setFeatures:
        return this.#setFeature(entry.readUInt8(40), entry.readUInt32LE(44));
      case admin.getFeatures:
        return this.#getFeature(entry.readUInt8(40));
      case admin.asyncEvent:
        // Over TCP and RDMA the queue has refused it before.
        if (this.#eventRequests.has(command.id)) return { status: status.idConflict };
        if (this.#eventRequests.size >= maxEventRequests) return { status: status.tooManyEvents };
        return new Promise((resolve) => {
          this.#eventRequests.set(command.id, resolve);
          this.#notify();
        });
      case admin.abort:
        return this.#abort(entry.readUInt16LE(40), entry.readUInt16LE(42));
      case admin.endOther:
        return this.#endOther(entry);
      default:
        return { status: status.invalidOpcode };
    }
  }

  /** A command at a device cannot be aborted, which the result reports. A request for an event can. */
  async #abort(queueId: number, id: number): Promise<Completion> {
    const waiting = queueId === 0 ? this.#eventRequests.get(id) : undefined;
    if (waiting === undefined) return { status: status.success, result: 1n };
    this.#eventRequests.delete(id);
    waiting({ status: status.abortRequested });
    // The aborted command is answered first. Its identifier is free when the host has the answer to Abort.
    await new Promise(setImmediate);
    return { status: status.success, result: 0n };
  }

  /** How many bytes a command of the admin queue gives to the host. */
  bytesOf({ opcode, entry }: Command): number {
    if (opcode === admin.identify) return 4096;
    if (opcode !== admin.getLogPage) return 0;
    return 4 * (entry.readUInt16LE(42) + 65_536 * entry.readUInt16LE(44) + 1);
  }

  #armKeepAlive(): void {
    clearTimeout(this.#keepAlive);
    this.#keepAlive = undefined;
    if (this.#keepAliveMs === 0 || this.#isEnded) return;
    this.#keepAlive = setTimeout(() => this.end(), Math.min(this.#keepAliveMs, longestTimerMs));
  }

  #property({ fabricsType, entry }: Command): Promise<Completion> | Completion {
    const isLong = entry.readUInt8(40) === 1;
    const offset = entry.readUInt32LE(44);
    if (fabricsType === fabrics.propertySet) {
      if (offset !== property.configuration || isLong) return { status: status.invalidField };
      return this.#configure(entry.readUInt32LE(48));
    }
    if (fabricsType !== fabrics.propertyGet) return { status: status.invalidField };
    const values: Record<number, bigint> = {
      [property.capabilities]: BigInt(maxQueueEntries - 1) | (1n << 16n) | (20n << 24n) | (1n << 37n),
      [property.version]: BigInt(version),
      [property.configuration]: BigInt(this.#configuration),
      [property.status]: BigInt(this.#status),
    };
    const result = values[offset];
    if (result === undefined || isLong !== (offset === property.capabilities))
      return { status: status.invalidField };
    return { status: status.success, result };
  }

  async #configure(value: number): Promise<Completion> {
    const wasEnabled = (this.#configuration & 1) !== 0;
    const isEnabled = (value & 1) !== 0;
    const isShutDown = ((value >>> 14) & 3) !== 0;
    const entrySizes = (value >>> 16) & 0xff;
    this.#configuration = value;
    if (isEnabled && !wasEnabled) {
      // Submission entries of 2^6 bytes, completion entries of 2^4; anything else is a fatal status.
      this.#status = entrySizes === 0x46 ? 1 : 2;
    }
    if (!isEnabled && wasEnabled) {
      this.#status = 0;
      for (const [queueId, queue] of this.#queues) if (queueId !== 0) queue.abort();
      for (const queue of this.#unproven) queue.abort();
    }
    if (isShutDown) {
      const { namespaces } = this.subsystem;
      const flushed = await Promise.allSettled([...namespaces.values()].map(({ device }) => device.flush()));
      if (flushed.some((one) => one.status === "rejected")) return { status: status.internal };
      this.#status = (this.#status & ~0xc) | 8;
    }
    return { status: status.success };
  }

  /**
   * Ends another controller of the host, and answers when no device has work under way for it. The result reports the
   * end, also for a controller of this target that has ended before. A controller of another target is refused.
   */
  async #endOther(entry: Buffer): Promise<Completion> {
    const controllerId = entry.readUInt16LE(40);
    const random = entry.readBigUInt64LE(48);
    if (this.subsystem.nqn === discoveryNqn) return { status: status.invalidOpcode };
    if (controllerId === this.id || random >> 32n !== BigInt(this.#family.target))
      return { status: status.invalidField };
    const other = [...this.#family.all].find((one) => one.#instance.random === random);
    if (other !== undefined) {
      const { host, subsystem } = this;
      const isOfHost = other.host.nqn === host.nqn && other.host.id === host.id;
      const isNamed = other.id === controllerId && other.#instance.uniquifier === entry.readUInt8(42);
      if (!isOfHost || !isNamed || other.subsystem.nqn !== subsystem.nqn)
        return { status: status.invalidField };
      other.end();
      await other.ended;
    }
    return { status: status.success, result: 1n };
  }

  #identify({ entry, nsid }: Command): Completion {
    const namespace = this.subsystem.namespaces.get(nsid);
    const page = (data: Buffer | undefined): Completion =>
      data === undefined ? { status: status.invalidNamespace } : { status: status.success, data };
    switch (entry.readUInt8(40)) {
      case 0:
        return page(namespace && identifyNamespace(namespace));
      case 1:
        return page(identifyController(this.subsystem, this.#instance, this.#facts));
      case 2:
        return nsid >= 0xfffffffe ? page(undefined) : page(activeNamespaces(this.subsystem, nsid));
      case 3:
        return page(namespace && namespaceDescriptors(namespace));
      default:
        return { status: status.invalidField };
    }
  }

  #notify(): void {
    for (const notice of [this.#accessNotice, this.#namespaceNotice]) {
      const [request] = this.#eventRequests;
      if (request === undefined || !notice.take(this.#events)) continue;
      this.#eventRequests.delete(request[0]);
      request[1]({ status: status.success, result: notice.result });
    }
  }

  /** The log has the current state. */
  #accessLog(entry: Buffer): Buffer {
    const word = entry.readUInt32LE(40);
    if ((word & keepsEvent) === 0) this.#accessNotice.logged();
    return accessLog(this.subsystem, (word & (1 << 8)) === 0);
  }

  #changedLog(entry: Buffer): Buffer {
    const log = changedLog(this.#changed);
    if ((entry.readUInt32LE(40) & keepsEvent) === 0) {
      this.#changed.clear();
      this.#namespaceNotice.logged();
    }
    return log;
  }

  #log(command: Command): Completion {
    const bytes = this.bytesOf(command);
    const offset = command.entry.readBigUInt64LE(48);
    const isDiscovery = this.subsystem.nqn === discoveryNqn;
    const { nqns, places } = this.#discovery;
    const logs: Record<number, () => Buffer> = isDiscovery
      ? { 112: () => discoveryLog(nqns, places) }
      : {
          1: () => Buffer.alloc(64),
          2: () => healthLog(this.subsystem),
          3: () => Buffer.alloc(512),
          [changedLogPage]: () => this.#changedLog(command.entry),
          [accessLogPage]: () => this.#accessLog(command.entry),
        };
    const log = logs[command.entry.readUInt8(40)]?.();
    if (log === undefined) return { status: status.invalidLog };
    if (bytes > maxTransferBytes || offset % 4n !== 0n || offset > BigInt(log.length))
      return { status: status.invalidField };
    const data = Buffer.alloc(bytes);
    log.copy(data, 0, Number(offset));
    return { status: status.success, data };
  }

  #setFeature(id: number, value: number): Completion {
    switch (id) {
      case feature.writeCache:
        return { status: (value & 1) === 1 ? status.success : status.notChangeable };
      case feature.queues:
        return this.#grantQueues(value & 0xffff, value >>> 16);
      case feature.events:
        this.#events = value;
        this.#notify();
        return { status: status.success };
      case feature.keepAlive:
        this.#keepAliveMs = value;
        this.#armKeepAlive();
        return { status: status.success };
      default:
        return { status: status.invalidField };
    }
  }

  /** Both numbers are one less than what the host wants: of submission queues, and of completion queues. */
  #grantQueues(submission: number, completion: number): Completion {
    if (submission === 0xffff || completion === 0xffff) return { status: status.invalidField };
    if (this.ioQueues > 0) return { status: status.sequence };
    const granted = this.keepPlaces(Math.min(submission + 1, completion + 1, this.#maxIoQueues));
    if (granted === 0) return { status: status.interrupted };
    return { status: status.success, result: BigInt((granted - 1) * 65_537) };
  }

  #getFeature(id: number): Completion {
    const values: Record<number, number> = {
      [feature.writeCache]: 1,
      [feature.queues]: Math.max(this.#kept + this.ioQueues - 1, 0) * 65_537,
      [feature.events]: this.#events,
      [feature.keepAlive]: this.#keepAliveMs,
    };
    const value = values[id];
    return value === undefined
      ? { status: status.invalidField }
      : { status: status.success, result: BigInt(value) };
  }
}

/** A controller without others. */
const alone: Controllers = { target: 0, all: [] };

const newInstance = (controllerId: number, { target }: Controllers): ControllerInstance => ({
  controllerId,
  uniquifier: randomInt(1, 256),
  random: (BigInt(target) << 32n) | BigInt(randomBytes(4).readUInt32LE()),
});
