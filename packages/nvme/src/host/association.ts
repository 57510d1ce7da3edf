import { setTimeout as pause } from "node:timers/promises";
import { authenticate, type HostSecrets } from "../authentication/host-side.ts";
import { securityProtocol } from "../authentication/messages.ts";
import { uuidOfBytes, uuidOfText } from "../device/identity.ts";
import type { NvmeAccess } from "../nvme/access.ts";
import {
  accessLogPage,
  admin,
  authenticationWanted,
  changedLogPage,
  fabrics,
  fabricsOpcode,
  newEntry,
} from "../nvme/command.ts";
import { accessEvents, type ControllerInstance, namespaceEvents } from "../nvme/identify.ts";
import { status } from "../nvme/status.ts";
import { accessLogLength, parseAccessLog } from "./access-log.ts";
import { type Answer, type HostCommand, QueueLostError, type SubmissionQueue } from "./submission-queue.ts";

/** The identity of a host, and the subsystem that it connects to. */
export interface Identity {
  readonly hostNqn: string;
  /** 16 bytes. */
  readonly hostId: Buffer;
  readonly nqn: string;
  /** The secrets that prove the identity. */
  readonly secrets?: HostSecrets | undefined;
}

export interface AssociationOptions {
  readonly identity: Identity;
  /** The number of I/O queues; 0 for the discovery service. */
  readonly queues: number;
  /** Commands under way in one I/O queue. */
  readonly queueDepth: number;
  /** 0: no keep-alive. */
  readonly keepAliveMs: number;
  /** Called when the access to a namespace may have changed. */
  readonly accessChanged?: (() => void) | undefined;
  /** Called with all namespaces when the target says that some have changed. */
  readonly namespacesChanged?: ((namespaces: readonly NamespaceFacts[]) => void) | undefined;
}

/** Opens a queue of a transport with so many entries. */
export type OpenQueue = (entries: number) => Promise<SubmissionQueue>;

/** The properties of a namespace. */
export interface NamespaceFacts {
  readonly nsid: number;
  readonly bytes: number;
  readonly blockBytes: number;
  readonly isReadOnly: boolean;
  /** Trimmed blocks read as zeroes. */
  readonly trimsToZero: boolean;
  readonly uuid: string;
}

/** Optional commands of a controller. */
export interface Abilities {
  readonly compare: boolean;
  readonly trim: boolean;
  readonly writeZeroes: boolean;
  /** How many blocks one compare-and-write may have; 0 if the controller does not support it. */
  readonly fusedBlocks: number;
}

const adminEntries = 32;
const enabled = 0x00460001;
const shutDown = 0x00464001;
/** The longest transfer that the host asks for, even where the controller takes more. */
const longestTransferBytes = 1024 * 1024;
/** How long a controller may take to shut down. */
const shutdownMs = 2000;

/**
 * The answer of a target to the request to end another controller. `unknown`: the target never had the controller, so
 * it is another target. `undecided`: the target does not know.
 */
export type EndOfOther = "ended" | "unknown" | "undecided";

/** An association with a controller: an admin queue, I/O queues and keep-alive. It ends as a whole. */
export class Association {
  /** Resolves with the reason when it has ended. */
  readonly lost: Promise<Error>;
  readonly #admin: SubmissionQueue;
  readonly #options: AssociationOptions;
  readonly #queues: SubmissionQueue[] = [];
  #keepAlive: NodeJS.Timeout | undefined;
  /** Keep-alive commands without an answer. Two are sent in the keep-alive time. */
  #unanswered = 0;
  #reason: Error | undefined;
  #lostMs = Number.POSITIVE_INFINITY;
  #markLost: (reason: Error) => void = () => {};
  /** The controller's instance, by which another controller may end it. */
  #instance: ControllerInstance | undefined;
  /** The target has confirmed that it does no more work for this association. */
  isQuiet = false;
  #maxTransferBytes = longestTransferBytes;
  #abilities: Abilities = { compare: false, trim: false, writeZeroes: false, fusedBlocks: 0 };
  #namespaces: readonly NamespaceFacts[] = [];
  /** How long the log of access is. 0: the controller has none. */
  #accessLogBytes = 0;
  #accesses: ReadonlyMap<number, NvmeAccess> = new Map();
  /** Reads of the log run one after another, so that the newest state is kept. */
  #learning = Promise.resolve();

  private constructor(adminQueue: SubmissionQueue, options: AssociationOptions) {
    this.#admin = adminQueue;
    this.#options = options;
    this.lost = new Promise((resolve) => (this.#markLost = resolve));
    void adminQueue.lost.then((reason) => this.end(reason));
  }

  /** Connects the queues, and learns what the controller has. @throws Error with the reason. */
  static async open(
    openQueue: OpenQueue,
    options: AssociationOptions,
    signal: AbortSignal,
  ): Promise<Association> {
    const association = new Association(await openQueue(adminEntries), options);
    const onAbort = () => association.end(new Error("closed"));
    signal.addEventListener("abort", onAbort);
    try {
      await association.#begin(openQueue);
      return association;
    } catch (error) {
      association.end(error as Error);
      throw error;
    } finally {
      signal.removeEventListener("abort", onAbort);
    }
  }

  get isLost(): boolean {
    return this.#reason !== undefined;
  }

  /** The time when the association ended, by this process's clock. */
  get lostMs(): number {
    return this.#lostMs;
  }

  /** The longest data of one command. */
  get maxTransferBytes(): number {
    return this.#maxTransferBytes;
  }

  get abilities(): Abilities {
    return this.#abilities;
  }

  get namespaces(): readonly NamespaceFacts[] {
    return this.#namespaces;
  }

  /** How the controller reaches a namespace. A controller without a log of access reaches all namespaces. */
  accessOf(nsid: number): NvmeAccess {
    return this.#accesses.get(nsid) ?? (this.#accessLogBytes === 0 ? "optimized" : "inaccessible");
  }

  /** Keeps the state that a refused command reported, until the log has another state. */
  takeAccess(nsid: number, access: NvmeAccess): void {
    if (this.#accessLogBytes === 0 || this.accessOf(nsid) === access) return;
    this.#accesses = new Map([...this.#accesses, [nsid, access]]);
    this.#learnAccess().catch((error: unknown) => this.end(error as Error));
  }

  /** Commands of the I/O queues that have no answer yet. */
  get underWay(): number {
    return this.#queues.reduce((sum, queue) => sum + queue.underWay, 0);
  }

  /** Gives a command to the I/O queue with the fewest commands. @throws as `SubmissionQueue.submit`. */
  submit(command: HostCommand, signal?: AbortSignal): Promise<Answer> {
    let [best] = this.#queues;
    for (const queue of this.#queues) if (best === undefined || queue.underWay < best.underWay) best = queue;
    if (best === undefined || this.#reason !== undefined)
      return Promise.reject(new QueueLostError(false, this.#reason ?? new Error("no I/O queue")));
    return best.submit(command, signal);
  }

  /** Reads a log page. */
  async log(page: number, offset: number, bytes: number): Promise<Buffer> {
    const data = Buffer.alloc(bytes);
    const count = bytes / 4 - 1;
    const words = [
      (count & 0xffff) * 65_536 + page,
      count >>> 16,
      offset % 2 ** 32,
      Math.floor(offset / 2 ** 32),
    ];
    await this.#command("Get Log Page", { entry: newEntry(admin.getLogPage, 0, words), toHost: data });
    return data;
  }

  /**
   * Asks the target to end a lost association, and to wait until its devices have finished the work of that
   * association.
   */
  async endOther(other: Association): Promise<EndOfOther> {
    if (this.#instance === undefined || other.#instance === undefined) return "undecided";
    const { controllerId, uniquifier, random } = other.#instance;
    const words = [
      controllerId + uniquifier * 65_536,
      0,
      Number(random & 0xffffffffn),
      Number(random >> 32n),
    ];
    try {
      const result = await this.#command("Cross-Controller Reset", {
        entry: newEntry(admin.endOther, 0, words),
      });
      // Bit 0: the controller has ended. Without it the controller ends later, and only a log would report when.
      return (result & 1n) === 1n ? "ended" : "undecided";
    } catch (error) {
      if (!(error instanceof StatusError)) throw error;
      return error.outcome === status.invalidField.code ? "unknown" : "undecided";
    }
  }

  /** Ends the association at once. */
  end(reason: Error): void {
    if (this.#reason !== undefined) return;
    this.#reason = reason;
    this.#lostMs = performance.now();
    clearInterval(this.#keepAlive);
    for (const queue of [...this.#queues, this.#admin]) queue.end(reason);
    this.#markLost(reason);
  }

  /** Asks the controller to flush and to end. */
  async shutDown(): Promise<void> {
    if (this.#reason === undefined) {
      const told = this.#setConfiguration(shutDown).catch(() => {});
      const late = new AbortController();
      await Promise.race([told, pause(shutdownMs, undefined, { signal: late.signal }).catch(() => {})]);
      late.abort();
    }
    this.end(new Error("closed"));
  }

  async #begin(openQueue: OpenQueue): Promise<void> {
    const { queues, queueDepth, keepAliveMs } = this.#options;
    const controllerId = await this.#connect(this.#admin, 0, adminEntries, 0xffff);
    const capabilities = await this.#property(0, 1);
    await this.#enable(Number((capabilities >> 24n) & 0xffn) * 500);
    const controller = await this.#identify(1, 0);
    const uniquifier = controller.readUInt8(135);
    if (uniquifier !== 0 && controller.readUInt8(1807) !== 0)
      this.#instance = { controllerId, uniquifier, random: controller.readBigUInt64LE(136) };
    const pageShift = 12 + Number((capabilities >> 48n) & 0xfn);
    const transferShift = controller.readUInt8(77);
    if (transferShift > 0)
      this.#maxTransferBytes = Math.min(longestTransferBytes, 2 ** (pageShift + transferShift));
    if (keepAliveMs > 0) this.#keepAlive = setInterval(() => this.#beat(), keepAliveMs / 2);
    if (queues === 0) return;
    const optional = controller.readUInt16LE(520);
    const entries = Math.min(queueDepth, Number(capabilities & 0xffffn)) + 1;
    this.#abilities = {
      compare: (optional & 1) !== 0,
      trim: (optional & 4) !== 0,
      writeZeroes: (optional & 8) !== 0,
      // A compare-and-write takes two places of a queue at once.
      fusedBlocks:
        (controller.readUInt16LE(522) & 1) !== 0 && entries > 2 ? controller.readUInt16LE(532) + 1 : 0,
    };
    if (controller.readUInt16LE(1800) !== 0)
      throw new Error("the controller wants an offset in its capsules");
    const inCapsuleBytes = Math.max(0, controller.readUInt32LE(1792) * 16 - 64);
    const granted = await this.#command("Set Features", {
      entry: newEntry(admin.setFeatures, 0, [7, (queues - 1) * 65_537]),
    });
    const count = Math.min(queues, Number(granted & 0xffffn) + 1);
    for (let queueId = 1; queueId <= count; queueId++) {
      const queue = await openQueue(entries);
      this.#queues.push(queue);
      void queue.lost.then((reason) => this.end(reason));
      await this.#connect(queue, queueId, entries, controllerId);
      queue.admit(inCapsuleBytes);
    }
    this.#namespaces = await this.#learnNamespaces();
    if ((controller.readUInt8(76) & 8) === 0) return;
    const namespaces = controller.readUInt32LE(540) || controller.readUInt32LE(516);
    const logBytes = accessLogLength(controller.readUInt32LE(348), namespaces);
    this.#accessLogBytes = Math.min(logBytes, this.#maxTransferBytes);
    if ((controller.readUInt32LE(92) & accessEvents) !== 0) {
      const events = controller.readUInt32LE(92) & (accessEvents | namespaceEvents);
      await this.#command("Set Features", { entry: newEntry(admin.setFeatures, 0, [0x0b, events]) });
      this.#followEvents().catch((error: unknown) => this.end(error as Error));
    }
    await this.#learnAccess();
  }

  /** Asks for events as long as the controller answers such requests. */
  async #followEvents(): Promise<void> {
    for (;;) {
      const request = { entry: newEntry(admin.asyncEvent, 0), isPatient: true };
      const { status: outcome, result } = await this.#admin.submit(request);
      if (outcome !== 0) return;
      const page = Number((result >> 16n) & 0xffn);
      if (page === accessLogPage) await this.#learnAccess();
      if (page !== changedLogPage) continue;
      // Before the namespaces are read: a later change is another event.
      await this.log(changedLogPage, 0, 4096);
      this.#namespaces = await this.#learnNamespaces();
      this.#options.namespacesChanged?.(this.#namespaces);
    }
  }

  #learnAccess(): Promise<void> {
    this.#learning = this.#learning.then(async () => {
      this.#accesses = parseAccessLog(await this.log(accessLogPage, 0, this.#accessLogBytes));
      this.#options.accessChanged?.();
    });
    return this.#learning;
  }

  async #connect(queue: SubmissionQueue, queueId: number, entries: number, controllerId: number) {
    const { identity, keepAliveMs } = this.#options;
    const words = [queueId * 65_536, entries - 1, queueId === 0 ? keepAliveMs : 0];
    const data = Buffer.alloc(1024);
    identity.hostId.copy(data);
    data.writeUInt16LE(controllerId, 16);
    data.write(identity.nqn, 256);
    data.write(identity.hostNqn, 512);
    const entry = newEntry(fabricsOpcode, fabrics.connect, words);
    const result = Number((await this.#command("Connect", { entry, fromHost: data }, queue)) & 0xffffffffn);
    await this.#prove(queue, queueId, result);
    return result & 0xffff;
  }

  /** Proves the identity of this host, if the controller asks for it in the result of Connect. */
  async #prove(queue: SubmissionQueue, queueId: number, connected: number): Promise<void> {
    const { secrets, hostNqn, nqn } = this.#options.identity;
    if ((connected & authenticationWanted.secureChannel) !== 0)
      throw new Error("the target wants a secure channel, which this host does not have");
    if ((connected & authenticationWanted.plain) === 0) {
      // A target may let the proof of the admin queue be that of the I/O queues.
      if (secrets?.controllerSecret === undefined || queueId !== 0) return;
      throw new Error("the target asks for no secret, so it does not prove that it has controllerSecret");
    }
    if (secrets === undefined) throw new Error("the target wants a secret, and this host has none");
    const command = async (type: number, bytes: number, data: Pick<HostCommand, "fromHost" | "toHost">) => {
      const { secp, spsp0, spsp1 } = securityProtocol;
      const entry = newEntry(fabricsOpcode, type, [
        spsp0 * 0x100 + spsp1 * 0x1_0000 + secp * 0x100_0000,
        bytes,
      ]);
      await this.#command("authentication", { entry, ...data }, queue);
    };
    const way = {
      send: (message: Buffer) => command(fabrics.authenticationSend, message.length, { fromHost: message }),
      get: (into: Buffer) => command(fabrics.authenticationReceive, into.length, { toHost: into }),
    };
    await authenticate(way, { hostNqn, subsystemNqn: nqn }, secrets);
  }

  async #enable(timeoutMs: number): Promise<void> {
    await this.#setConfiguration(enabled);
    const endMs = performance.now() + timeoutMs;
    for (let waitMs = 1; ; waitMs *= 2) {
      const state = await this.#property(0x1c, 0);
      if ((state & 2n) !== 0n) throw new Error("the controller reports a fatal status");
      if ((state & 1n) !== 0n) return;
      if (performance.now() > endMs) throw new Error("the controller did not become ready");
      await pause(Math.min(waitMs, 100));
    }
  }

  async #learnNamespaces(): Promise<NamespaceFacts[]> {
    const { nqn } = this.#options.identity;
    const found: NamespaceFacts[] = [];
    for (let last = 0; ; ) {
      const list = await this.#identify(2, last);
      for (let at = 0; at < 4096; at += 4) {
        const nsid = list.readUInt32LE(at);
        if (nsid === 0) return found;
        // A list without rising numbers would never end.
        if (nsid <= last) throw new Error("the controller lists namespaces in no order");
        last = nsid;
        const facts = factsOf(nsid, await this.#identify(0, nsid), await this.#uuidOf(nsid), nqn);
        if (facts !== undefined) found.push(facts);
      }
    }
  }

  /** The UUID of the namespace. Some controllers do not support the request. */
  async #uuidOf(nsid: number): Promise<string | undefined> {
    const list = await this.#identify(3, nsid).catch((error: unknown) => {
      if (error instanceof StatusError) return undefined;
      throw error;
    });
    for (let at = 0; list !== undefined && at + 20 <= 4096; ) {
      const [type, length] = [list.readUInt8(at), list.readUInt8(at + 1)];
      if (type === 3 && length === 16) return uuidOfBytes(list.subarray(at + 4, at + 20));
      if (length === 0) return undefined;
      at += 4 + length;
    }
    return undefined;
  }

  #beat(): void {
    if (this.#unanswered === 2) {
      this.end(new Error(`the target did not answer within ${this.#options.keepAliveMs} ms`));
      return;
    }
    this.#unanswered++;
    this.#command("Keep Alive", { entry: newEntry(admin.keepAlive, 0) }).then(
      () => (this.#unanswered = 0),
      (error: unknown) => this.end(error as Error),
    );
  }

  async #identify(kind: number, nsid: number): Promise<Buffer> {
    const data = Buffer.alloc(4096);
    await this.#command("Identify", { entry: newEntry(admin.identify, nsid, [kind]), toHost: data });
    return data;
  }

  #setConfiguration(value: number): Promise<bigint> {
    const entry = newEntry(fabricsOpcode, fabrics.propertySet, [0, 0x14, value, 0]);
    return this.#command("Property Set", { entry });
  }

  #property(offset: number, size: number): Promise<bigint> {
    return this.#command("Property Get", {
      entry: newEntry(fabricsOpcode, fabrics.propertyGet, [size, offset]),
    });
  }

  async #command(name: string, command: HostCommand, queue = this.#admin): Promise<bigint> {
    const { status: outcome, result } = await queue.submit(command);
    if (outcome !== 0) throw new StatusError(name, outcome);
    return result;
  }
}

/** A command of the admin queue, or Connect, that was refused. */
export class StatusError extends Error {
  readonly outcome: number;

  constructor(name: string, outcome: number) {
    const refusals: Record<number, string> = {
      [status.controllerBusy.code]: "the controller is busy",
      [status.connectParameters.code]: "it has no such subsystem, or wants other parameters",
      [status.hostNotAllowed.code]: "it does not admit this host",
    };
    const why = name === "Connect" ? refusals[outcome] : undefined;
    super(`the target refused ${name}: ${why ?? `status 0x${outcome.toString(16)}`}`);
    this.outcome = outcome;
  }
}

/** Undefined for a format that no block device has: with metadata, or with blocks of another length. */
function factsOf(
  nsid: number,
  data: Buffer,
  uuid: string | undefined,
  nqn: string,
): NamespaceFacts | undefined {
  // NGUID and EUI64, of a controller without UUIDs. A namespace may have none of them.
  const others = data.subarray(104, 128);
  const format = data.readUInt8(26);
  const index = (format & 0xf) | ((format >>> 1) & 0x30);
  const at = 128 + 4 * index;
  const blockShift = data.readUInt8(at + 2);
  const blocks = data.readBigUInt64LE(0);
  const bytes = Number(blocks) * 2 ** blockShift;
  if (data.readUInt16LE(at) !== 0 || blockShift < 9 || blockShift > 16) return undefined;
  if (blocks === 0n || !Number.isSafeInteger(bytes)) return undefined;
  return {
    nsid,
    bytes,
    blockBytes: 2 ** blockShift,
    isReadOnly: (data.readUInt8(99) & 1) !== 0,
    trimsToZero: (data.readUInt8(33) & 7) === 1,
    uuid: uuid ?? uuidOfText(others.some((byte) => byte !== 0) ? others.toString("hex") : `${nqn} ${nsid}`),
  };
}
