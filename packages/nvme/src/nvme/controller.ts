import { admin, type Command, discoveryNqn, fabrics, fabricsOpcode } from "./command.ts";
import {
  activeNamespaces,
  discoveryLog,
  healthLog,
  identifyController,
  identifyNamespace,
  maxIoQueues,
  maxQueueEntries,
  maxTransferBytes,
  namespaceDescriptors,
  type SubsystemFacts,
  version,
} from "./identify.ts";
import { type Completion, status } from "./status.ts";

/** Events that a host may wait for at the same time. */
const maxEventRequests = 4;

const property = { capabilities: 0x00, version: 0x08, configuration: 0x14, status: 0x1c } as const;
const feature = { writeCache: 0x06, queues: 0x07, events: 0x0b, keepAlive: 0x0f } as const;

/** A queue of a controller, as its transport has it. */
export interface Queue {
  /** The address of this machine at which the host has come. */
  readonly localHost?: string | undefined;
  /** Ends the connection at once. Commands that the device has not begun are never begun. */
  abort(): void;
  /** Resolves when the device has nothing under way for the queue. */
  readonly settled: Promise<void>;
}

/** What a Connect came to: the controller and the number of the queue, or why not. */
export type Connected =
  | { readonly controller: Controller; readonly queueId: number; readonly entries: number }
  | { readonly refused: Completion };

/** Who a controller serves. */
export interface HostFacts {
  readonly nqn: string;
  /** 16 bytes in hexadecimal digits. */
  readonly id: string;
}

/** What the discovery service tells a host. */
export interface Discovery {
  readonly host: string;
  readonly port: number;
  readonly nqns: readonly string[];
}

/** An association of a host with a subsystem: an admin queue and I/O queues. It ends as a whole. */
export class Controller {
  readonly id: number;
  readonly host: HostFacts;
  readonly subsystem: SubsystemFacts;
  /** Resolves when the controller has ended and no device has anything under way for it. */
  readonly ended: Promise<void>;
  readonly #discovery: Discovery;
  readonly #queues = new Map<number, Queue>();
  #markEnded = () => {};
  #isEnded = false;
  #configuration = 0;
  #status = 0;
  #events = 0;
  #keepAliveMs: number;
  #keepAlive: NodeJS.Timeout | undefined;
  /** When the host's last command for the admin queue came. */
  #heardAtMs = performance.now();
  /** The next look at the clock. */
  #look: Promise<boolean> | undefined;
  readonly #eventRequests = new Map<number, (completion: Completion) => void>();

  constructor(
    id: number,
    host: HostFacts,
    subsystem: SubsystemFacts,
    discovery: Discovery,
    { keepAliveMs, adminQueue }: { readonly keepAliveMs: number; readonly adminQueue: Queue },
  ) {
    this.id = id;
    this.host = host;
    this.subsystem = subsystem;
    this.#discovery = discovery;
    this.ended = new Promise((resolve) => (this.#markEnded = resolve));
    this.#queues.set(0, adminQueue);
    this.#keepAliveMs = keepAliveMs;
    this.#armKeepAlive();
  }

  get isEnded(): boolean {
    return this.#isEnded;
  }

  /** The host has enabled it, so that I/O queues may connect. */
  get isReady(): boolean {
    return !this.#isEnded && (this.#status & 1) !== 0;
  }

  /**
   * Whether commands may be done still. A process that was stopped reads commands of before ahead of its timers, so the
   * clock decides as well: it ends a controller whose keep-alive time is over.
   */
  checkAlive(): boolean {
    if (this.#keepAliveMs > 0 && performance.now() - this.#heardAtMs >= this.#keepAliveMs) this.end();
    return !this.#isEnded;
  }

  /**
   * As `checkAlive`, for commands that are about to be done. One look at the clock, which may be a system call, is for
   * all that have come by then: they are begun right after it.
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

  /** Takes an I/O queue; false where the number is in use. */
  add(queueId: number, queue: Queue): boolean {
    if (this.#queues.has(queueId)) return false;
    this.#queues.set(queueId, queue);
    void queue.settled.then(() => {
      if (this.#queues.get(queueId) === queue) this.#queues.delete(queueId);
    });
    return true;
  }

  /** Ends every queue. Nothing that is not under way in a device will be done. */
  end(): void {
    if (this.#isEnded) return;
    this.#isEnded = true;
    clearTimeout(this.#keepAlive);
    for (const waiting of this.#eventRequests.values()) waiting({ status: status.abortRequested });
    this.#eventRequests.clear();
    const queues = [...this.#queues.values()];
    for (const queue of queues) queue.abort();
    void Promise.all(queues.map(({ settled }) => settled)).then(this.#markEnded);
  }

  /** Executes a command of the admin queue, other than Connect. */
  async execute(command: Command): Promise<Completion> {
    this.#heardAtMs = performance.now();
    this.#keepAlive?.refresh();
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
        if (this.#eventRequests.size >= maxEventRequests) return { status: status.tooManyEvents };
        return new Promise((resolve) => this.#eventRequests.set(command.id, resolve));
      case admin.abort: {
        // Commands of a device cannot be called back. What waits for an event can.
        const [queueId, id] = [entry.readUInt16LE(40), entry.readUInt16LE(42)];
        const waiting = queueId === 0 ? this.#eventRequests.get(id) : undefined;
        this.#eventRequests.delete(id);
        waiting?.({ status: status.abortRequested });
        return { status: status.success, result: waiting === undefined ? 1n : 0n };
      }
      default:
        return { status: status.invalidOpcode };
    }
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
    this.#keepAlive = setTimeout(() => this.end(), this.#keepAliveMs);
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
    }
    if (isShutDown) {
      const { namespaces } = this.subsystem;
      const flushed = await Promise.allSettled([...namespaces.values()].map(({ device }) => device.flush()));
      if (flushed.some((one) => one.status === "rejected")) return { status: status.internal };
      this.#status = (this.#status & ~0xc) | 8;
    }
    return { status: status.success };
  }

  #identify({ entry, nsid }: Command): Completion {
    const namespace = this.subsystem.namespaces.get(nsid);
    const page = (data: Buffer | undefined): Completion =>
      data === undefined ? { status: status.invalidNamespace } : { status: status.success, data };
    switch (entry.readUInt8(40)) {
      case 0:
        return page(namespace && identifyNamespace(namespace));
      case 1:
        return page(identifyController(this.subsystem, this.id));
      case 2:
        return nsid >= 0xfffffffe ? page(undefined) : page(activeNamespaces(this.subsystem, nsid));
      case 3:
        return page(namespace && namespaceDescriptors(namespace));
      default:
        return { status: status.invalidField };
    }
  }

  #log(command: Command): Completion {
    const bytes = this.bytesOf(command);
    const offset = command.entry.readBigUInt64LE(48);
    const isDiscovery = this.subsystem.nqn === discoveryNqn;
    const { nqns, host, port } = this.#discovery;
    const logs: Record<number, () => Buffer> = isDiscovery
      ? { 112: () => discoveryLog(nqns, host, port) }
      : { 1: () => Buffer.alloc(64), 2: healthLog, 3: () => Buffer.alloc(512), 4: () => Buffer.alloc(4096) };
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
      case feature.queues: {
        const wanted = Math.min(value & 0xffff, value >>> 16, maxIoQueues - 1);
        return { status: status.success, result: BigInt(wanted * 65_537) };
      }
      case feature.events:
        this.#events = value;
        return { status: status.success };
      case feature.keepAlive:
        this.#keepAliveMs = value;
        this.#armKeepAlive();
        return { status: status.success };
      default:
        return { status: status.invalidField };
    }
  }

  #getFeature(id: number): Completion {
    const values: Record<number, number> = {
      [feature.writeCache]: 1,
      [feature.queues]: (maxIoQueues - 1) * 65_537,
      [feature.events]: this.#events,
      [feature.keepAlive]: this.#keepAliveMs,
    };
    const value = values[id];
    return value === undefined
      ? { status: status.invalidField }
      : { status: status.success, result: BigInt(value) };
  }
}
