import { createHash, randomUUID } from "node:crypto";
import { setTimeout as pause } from "node:timers/promises";
import {
  anything,
  boolean,
  checkedBy,
  type FieldsOf,
  fail,
  integer,
  list,
  milliseconds,
  required,
  resolveNested,
  resolveOptions,
  text,
} from "cinnabar/options";
import type { Engine } from "cinnabar/standard";
import { secretField } from "../authentication/secret.ts";
import { CallSubmissionQueue } from "../calls/submission-queue.ts";
import { BlockDeviceError } from "../device/block-device.ts";
import { accessOfStatus, type NvmeAccess } from "../nvme/access.ts";
import { discoveryNqn } from "../nvme/command.ts";
import { TcpSubmissionQueue } from "../tcp/submission-queue.ts";
import { type HostTls, hostKey, hostTlsFields, type NvmeHostTls } from "../tls/host-side.ts";
import type { PreSharedKey } from "../tls/pre-shared-key.ts";
import { Association, type NamespaceFacts, type OpenQueue } from "./association.ts";
import { type DiscoveredSubsystem, readDiscoveryLog } from "./discovery.ts";
import { type Effect, HostNamespace, type NvmeNamespace } from "./nvme-namespace.ts";
import { type Answer, type HostCommand, QueueLostError } from "./submission-queue.ts";

/** An address of NVMe/TCP. */
export interface NvmeAddress {
  /** A name or an address. */
  readonly host: string;
  /** Default: 4420. */
  readonly port?: number;
}

/** An engine of Cinnabar that serves the `capsules` of a target. */
export interface NvmeEngineAddress {
  /** The engine that calls. It stays open. */
  readonly engine: Engine;
  /** The URL of the engine that serves. */
  readonly url: string;
}

/** One way to a subsystem. */
export type NvmePath = NvmeAddress | NvmeEngineAddress;

/** What `NvmeHost.connect` and `NvmeHost.discover` have in common. */
export interface NvmeConnectionOptions {
  /**
   * The NQN of this host, which targets admit. Default: one with a random UUID. Give one where the target admits hosts
   * by name.
   */
  readonly hostNqn?: string | undefined;
  /** A digest over each header. Default: false. */
  readonly headerDigest?: boolean | undefined;
  /** A digest over data: it finds errors that TCP's checksum misses. Default: false. */
  readonly dataDigest?: boolean | undefined;
  /** How long a connection, and the answer to a command, may take, in milliseconds. Default: 30,000. */
  readonly timeoutMs?: number | undefined;
  /**
   * TLS 1.3 with a key, for paths of NVMe/TCP alone. A target without TLS, or with another key, is not used. It needs
   * `hostNqn`. Default: none, and nothing is encrypted.
   */
  readonly tls?: NvmeHostTls | undefined;
}

/** The options of `NvmeHost.connect`. */
export interface NvmeHostOptions extends NvmeConnectionOptions {
  /** The NQN of the subsystem. */
  readonly nqn: string;
  /**
   * Paths to the subsystem, from 1 to 16. The first connected path carries all commands; the others take over. If
   * targets report how they reach a namespace, the host takes the first of the best paths.
   */
  readonly paths: readonly NvmePath[];
  /** I/O queues of each path: connections beside the one of the admin queue, at most 64. Default: 1. */
  readonly queues?: number | undefined;
  /** Commands under way in a queue, at most 1,023. More wait at the host. The target may allow fewer. Default: 64. */
  readonly queueDepth?: number | undefined;
  /**
   * How long a target keeps the association of a silent host, in milliseconds. The host sends two keep-alive commands
   * in that time. 0: the target keeps the association for ever. Default: 10,000.
   */
  readonly keepAliveMs?: number | undefined;
  /** How long to wait before a path that was lost, or could not be connected, is tried again. Default: 1,000. */
  readonly reconnectMs?: number | undefined;
  /** How long operations wait when no path is connected, in milliseconds. Default: 60,000. */
  readonly lossTimeoutMs?: number | undefined;
  /**
   * The secret of this host, as `makeSecret` gives it. The host proves it by DH-HMAC-CHAP to targets that ask for it.
   * Such targets know `hostNqn`.
   */
  readonly secret?: string | undefined;
  /** The secret of the subsystem. A target that does not prove this secret is not used. It needs `secret` as well. */
  readonly controllerSecret?: string | undefined;
}

/** One path at this moment. */
export interface NvmePathStats {
  /** `HOST:PORT`, or a URL. */
  readonly address: string;
  readonly isConnected: boolean;
  /** How often the path was connected. */
  readonly connects: number;
  /** Why the path was lost, or could not be connected, the last time. */
  readonly lastError: Error | undefined;
  /** How the path reaches each namespace, by the namespace's number. Empty if the path is not connected. */
  readonly access: Readonly<Record<number, NvmeAccess>>;
}

/** Counts of a host. */
export interface NvmeHostStats {
  readonly paths: readonly NvmePathStats[];
  /** Commands that have no answer yet. */
  readonly underWay: number;
  /** Commands that were sent again, after a path was lost or the target asked for it. */
  readonly repeated: number;
}

const nqnField = checkedBy((where, name, value): string => {
  if (typeof value !== "string" || !value.startsWith("nqn.") || Buffer.byteLength(value) > 223)
    fail(TypeError, where, name, "an NVMe qualified name of at most 223 bytes", value);
  return value as string;
});

const addressFields = {
  host: required(text(1, 255)),
  port: integer(1, 65_535, 4420),
} satisfies FieldsOf<NvmeAddress>;
const engineFields = {
  engine: required(anything<Engine>()),
  url: required(text(1, 2048)),
} satisfies FieldsOf<NvmeEngineAddress>;
const pathField = checkedBy((where, name, value) =>
  typeof value === "object" && value !== null && "url" in value
    ? resolveNested(where, name, value, engineFields)
    : resolveNested(where, name, value, addressFields),
);

const connectionFields = {
  hostNqn: nqnField,
  headerDigest: boolean(false),
  dataDigest: boolean(false),
  timeoutMs: milliseconds({ low: 1, fallback: 30_000 }),
} satisfies FieldsOf<Omit<NvmeConnectionOptions, "tls">>;

/** Keys and secrets are parsed when they are checked. */
const tlsFields = {
  tls: {
    resolve: (where: string, name: string, value: unknown) =>
      resolveNested(where, name, value, hostTlsFields),
  },
};
const secretFields = { ...tlsFields, secret: secretField, controllerSecret: secretField };

const fields = {
  ...connectionFields,
  nqn: required(nqnField),
  paths: required(list(pathField, 1, 16)),
  queues: integer(1, 64, 1),
  queueDepth: integer(1, 1023, 64),
  keepAliveMs: milliseconds({ low: 0, fallback: 10_000 }),
  reconnectMs: milliseconds({ low: 1, fallback: 1000 }),
  lossTimeoutMs: milliseconds({ low: 0, fallback: 60_000 }),
} satisfies FieldsOf<Omit<NvmeHostOptions, keyof typeof secretFields>>;

/** How often a command is repeated if the target's answer allows it. */
const maxRepetitions = 5;
/** Doubled each time. */
const repetitionPauseMs = 10;

/** Statuses after which a command may be sent again: internal, aborted, SQ deleted, transport, not ready. */
const transientStatuses = new Set([0x06, 0x07, 0x08, 0x19, 0x22, 0x82]);
const mayRepeat = ({ status, doNotRetry }: Answer): boolean =>
  !doNotRetry && (transientStatuses.has(status) || status >>> 8 === 3);

/** A path to the subsystem, and its state. */
interface Path {
  readonly address: string;
  readonly open: OpenQueue;
  association: Association | undefined;
  /** Lost associations whose commands the target may still execute. */
  formers: readonly Association[];
  connects: number;
  lastError: Error | undefined;
}

type OpenPath = Path & { readonly association: Association };

/**
 * An association that was lost with a change under way. The target may do the change until the association is quiet.
 */
interface Doubt {
  readonly association: Association;
  /** The time when the target has ended the silent association, by this process's clock. */
  readonly untilMs: number;
}

const noDoubts: readonly Doubt[] = [];

/**
 * A host of NVMe over Fabrics: it connects to a subsystem and offers its namespaces as devices. The host connects lost
 * paths again, and sends commands without an answer again.
 *
 * A read, a flush and a comparison are repeated at once, on any path. A write, zeroes and a trim that were sent may be
 * under way in a target that the host has lost. The host repeats such a change with the same data in the same place,
 * before its promise resolves. The host repeats a change only when the target cannot do the first one afterwards. It is
 * sure of that when the target confirms a Cross-Controller Reset of the lost association, on that path or on another.
 * It is sure of it also after twice the keep-alive time: the target has ended the silent host by then. With
 * `keepAliveMs: 0` a target never ends a silent host. A compare-and-write that was sent is never repeated.
 */
export class NvmeHost implements AsyncDisposable {
  readonly #resolved: ReturnType<typeof resolveHost>;
  readonly #hostNqn: string;
  readonly #hostId: Buffer;
  readonly #paths: readonly Path[];
  readonly #closing = new AbortController();
  readonly #waiting = new Set<() => void>();
  #namespaces: readonly HostNamespace[] = [];
  #maxTransferBytes = 0;
  #lostMs = performance.now();
  #repeated = 0;
  #loops: readonly Promise<void>[] = [];
  #closed: Promise<void> | undefined;

  private constructor(resolved: ReturnType<typeof resolveHost>) {
    this.#resolved = resolved;
    this.#hostNqn = resolved.hostNqn ?? randomNqn();
    this.#hostId = hostIdOf(this.#hostNqn);
    const { headerDigest: header, dataDigest: data, timeoutMs } = resolved;
    const { signal } = this.#closing;
    const { tls } = resolved;
    this.#paths = resolved.paths.map((path) => ({
      ...("url" in path
        ? {
            address: path.url,
            open: (entries: number) => CallSubmissionQueue.open({ ...path, entries, timeoutMs }, signal),
          }
        : {
            address: `${path.host}:${path.port}`,
            open: (entries: number) =>
              TcpSubmissionQueue.open(
                { ...path, digests: { header, data }, entries, timeoutMs, tls },
                signal,
              ),
          }),
      association: undefined,
      formers: [],
      connects: 0,
      lastError: undefined,
    }));
  }

  /**
   * Connects to a subsystem. Resolves when one path is connected, and goes on with the others.
   *
   * @throws TypeError or RangeError for options that do not fit. Error where no path can be connected.
   */
  static async connect(options: NvmeHostOptions): Promise<NvmeHost> {
    const resolved = resolveHost(options);
    const host = new NvmeHost(resolved);
    const first = host.#paths.map(
      (path) => new Promise<void>((resolve, reject) => host.#begin(path, resolve, reject)),
    );
    try {
      await Promise.any(first);
    } catch (error) {
      const { errors } = error as AggregateError;
      const reasons = host.#paths.map(({ address }, index) => `${address}: ${errors[index].message}`);
      await host.close();
      throw new Error(`NvmeHost.connect: no path to ${resolved.nqn}: ${reasons.join("; ")}`, {
        cause: error,
      });
    }
    return host;
  }

  /**
   * Asks a discovery service for the subsystems that this host may use. Targets have it at their own port or at 8009.
   *
   * @throws TypeError or RangeError for options that do not fit. Error if the service cannot be reached.
   */
  static async discover(
    options: NvmeAddress & NvmeConnectionOptions,
  ): Promise<readonly DiscoveredSubsystem[]> {
    const where = "NvmeHost.discover";
    const resolved = resolveOptions(where, options, { ...connectionFields, ...addressFields, ...tlsFields });
    const { host, port, timeoutMs, hostNqn = randomNqn() } = resolved;
    const tls = keyOf(where, resolved, discoveryNqn);
    const digests = { header: resolved.headerDigest, data: resolved.dataDigest };
    const identity = { hostNqn, hostId: hostIdOf(hostNqn), nqn: discoveryNqn };
    const { signal } = new AbortController();
    let association: Association | undefined;
    try {
      association = await Association.open(
        (entries) => TcpSubmissionQueue.open({ host, port, digests, entries, timeoutMs, tls }, signal),
        { identity, queues: 0, queueDepth: 1, keepAliveMs: 0 },
        signal,
      );
      return await readDiscoveryLog(association);
    } catch (cause) {
      throw new Error(`${where}: ${host}:${port}: ${(cause as Error).message}`, { cause });
    } finally {
      await association?.shutDown();
    }
  }

  /** The devices, by rising numbers: those of the time when the host connected. */
  get namespaces(): readonly NvmeNamespace[] {
    return this.#namespaces;
  }

  /** Counts at this moment. */
  stats(): NvmeHostStats {
    return {
      paths: this.#paths.map(({ address, association, connects, lastError }) => ({
        ...{ address, connects, lastError },
        isConnected: association?.isLost === false,
        access: Object.fromEntries(
          association?.isLost === false
            ? this.#namespaces.map(({ nsid }) => [nsid, association.accessOf(nsid)])
            : [],
        ),
      })),
      underWay: this.#paths.reduce((sum, { association }) => sum + (association?.underWay ?? 0), 0),
      repeated: this.#repeated,
    };
  }

  /**
   * Waits for the operations under way, and asks the target to flush and to end. Operations that wait for a path fail.
   * A second call waits for the first.
   */
  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #close(): Promise<void> {
    this.#closing.abort();
    this.#changed();
    await Promise.all(this.#namespaces.map((namespace) => namespace.close()));
    await Promise.all(this.#paths.map(({ association }) => association?.shutDown()));
    await Promise.all(this.#loops);
  }

  /** How long a change that was sent may be done after its association was lost. Without keep-alive: for ever. */
  get #doubtMs(): number {
    const { keepAliveMs, lossTimeoutMs } = this.#resolved;
    return keepAliveMs === 0 ? lossTimeoutMs : 2 * keepAliveMs;
  }

  /** Connects a path again and again until the host closes. Reports the outcome of the first attempt. */
  #begin(path: Path, connected: () => void, failed: (error: Error) => void): void {
    const { reconnectMs } = this.#resolved;
    const { signal } = this.#closing;
    const loop = async () => {
      while (!signal.aborted) {
        const startedMs = performance.now();
        try {
          const association = await this.#associate(path);
          path.association = association;
          path.connects++;
          connected();
          this.#changed();
          path.lastError = await association.lost;
          path.association = undefined;
          path.formers = [...path.formers, association].filter((one) => this.#mayGoOn(one));
          void this.#endOverOthers(path, association);
          if (!this.#paths.some((one) => one.association !== undefined)) this.#lostMs = performance.now();
          this.#changed();
        } catch (error) {
          if (!signal.aborted) path.lastError = error as Error;
          failed(error as Error);
        }
        // The host pauses before it retries a target that accepts a connection and ends it at once.
        if (performance.now() - startedMs < reconnectMs)
          await pause(reconnectMs, undefined, { signal }).catch(() => {});
      }
    };
    this.#loops = [...this.#loops, loop()];
  }

  /** Whether the target may still execute commands of a lost association. */
  #mayGoOn({ isQuiet, lostMs }: Association): boolean {
    return !isQuiet && performance.now() - lostMs < this.#doubtMs;
  }

  /** Asks a target on another path to end a lost association. */
  async #endOverOthers(path: Path, lost: Association): Promise<void> {
    for (const { association } of this.#paths.filter((other) => other !== path && isOpen(other))) {
      const outcome = await association?.endOther(lost).catch(() => "undecided");
      if (outcome !== "ended") continue;
      lost.isQuiet = true;
      this.#changed();
      return;
    }
  }

  /**
   * Asks the target of a path to end the former associations. A target that does not know them has replaced another
   * one, which is gone.
   */
  async #endFormers(path: Path, association: Association): Promise<void> {
    for (const former of path.formers)
      if (this.#mayGoOn(former) && (await association.endOther(former)) !== "undecided")
        former.isQuiet = true;
    path.formers = path.formers.filter((one) => this.#mayGoOn(one));
  }

  async #associate(path: Path): Promise<Association> {
    const { nqn, queues, queueDepth, keepAliveMs } = this.#resolved;
    const { signal } = this.#closing;
    const { secret, controllerSecret } = this.#resolved;
    const secrets = secret && { secret, controllerSecret };
    const identity = { hostNqn: this.#hostNqn, hostId: this.#hostId, nqn, secrets };
    const accessChanged = () => this.#changed();
    const namespacesChanged = (now: readonly NamespaceFacts[]) => this.#grow(now);
    const options = { identity, queues, queueDepth, keepAliveMs, accessChanged, namespacesChanged };
    const association = await Association.open(path.open, options, signal);
    const fault = signal.aborted ? "closed" : this.#know(association);
    if (fault === undefined) {
      await this.#endFormers(path, association);
      return association;
    }
    await association.shutDown();
    throw new Error(fault);
  }

  /** The first association defines the namespaces. Later associations must have the same. Undefined if they do. */
  #know(association: Association): string | undefined {
    const { namespaces, abilities, maxTransferBytes } = association;
    if (this.#maxTransferBytes === 0) {
      if (namespaces.length === 0) return "the subsystem has no namespace that this host can use";
      this.#maxTransferBytes = maxTransferBytes;
      this.#namespaces = namespaces.map(
        (facts) =>
          new HostNamespace(facts, abilities, maxTransferBytes, (command, effect, signal) =>
            this.#execute(command, effect, signal),
          ),
      );
      return undefined;
    }
    if (maxTransferBytes < this.#maxTransferBytes)
      return "this path takes shorter transfers than the first one";
    const isSame = this.#namespaces.every((known) =>
      namespaces.some(
        ({ nsid, uuid, bytes, blockBytes }) =>
          nsid === known.nsid &&
          uuid === known.uuid &&
          // A target that has not seen that the disk has grown is used when it has.
          bytes >= known.bytes &&
          blockBytes === known.blockBytes,
      ),
    );
    if (!isSame) return "this path leads to other namespaces than the first one";
    this.#grow(namespaces);
    return undefined;
  }

  #grow(now: readonly NamespaceFacts[]): void {
    for (const { nsid, bytes } of now) this.#namespaces.find((one) => one.nsid === nsid)?.growTo(bytes);
  }

  async #execute(command: HostCommand, effect: Effect, signal: AbortSignal | undefined): Promise<Answer> {
    let doubts = noDoubts;
    const nsid = command.entry.readUInt32LE(4);
    for (let repetitions = 0; ; this.#repeated++) {
      let path = doubts.length === 0 ? this.#best(nsid) : undefined;
      path ??= await this.#pathFor(nsid, doubts, signal);
      const { association } = path;
      let answer: Answer;
      try {
        answer = await association.submit(command, signal);
      } catch (error) {
        if (!(error instanceof QueueLostError)) throw error;
        if (effect === "unique" && error.wasSent)
          throw new BlockDeviceError("io", `${error.message}; the target may have done it`, error);
        if (effect === "same" && error.wasSent)
          doubts = [...doubts, { association, untilMs: performance.now() + this.#doubtMs }];
        continue;
      }
      if (!mayRepeat(answer) || repetitions === maxRepetitions) return answer;
      repetitions++;
      const refusedFor = accessOfStatus(answer.status);
      if (refusedFor !== undefined) {
        association.takeAccess(nsid, refusedFor);
        if (this.#best(nsid)?.association !== association) continue;
      }
      await pause(repetitionPauseMs * 2 ** repetitions, undefined, signal === undefined ? {} : { signal });
    }
  }

  /** The first connected path that reaches a namespace best. */
  #best(nsid: number): OpenPath | undefined {
    let other: OpenPath | undefined;
    for (const path of this.#paths) {
      if (!isOpen(path)) continue;
      const access = path.association.accessOf(nsid);
      if (access === "optimized") return path;
      if (access === "non-optimized") other ??= path;
    }
    return other;
  }

  /** The best path, when there is one and no doubt forbids it. */
  async #pathFor(nsid: number, doubts: readonly Doubt[], signal: AbortSignal | undefined): Promise<OpenPath> {
    const { lossTimeoutMs, nqn, keepAliveMs } = this.#resolved;
    const startedMs = performance.now();
    for (;;) {
      signal?.throwIfAborted();
      const path = this.#best(nsid);
      const nowMs = performance.now();
      const open = doubts.filter(
        ({ association, untilMs }) => !association.isQuiet && (keepAliveMs === 0 || untilMs > nowMs),
      );
      if (path !== undefined && open.length === 0) return path;
      const isInDoubt = open.length > 0 ? "; the target may have done it" : "";
      if (this.#closing.signal.aborted && path === undefined)
        throw new BlockDeviceError("closed", `the host is closed${isInDoubt}`);
      let endMs = Math.max(...open.map(({ untilMs }) => untilMs));
      if (path !== undefined && nowMs >= endMs)
        throw new BlockDeviceError(
          "io",
          `no target has ended what was lost ${lossTimeoutMs} ms ago${isInDoubt}`,
        );
      if (path === undefined) {
        // A path that is about to be lost fails at once.
        const connected = this.#paths.find(isOpen);
        const isLosing = this.#paths.some(({ association }) => association !== undefined);
        endMs = (connected !== undefined ? startedMs : isLosing ? nowMs : this.#lostMs) + lossTimeoutMs;
        if ((connected !== undefined || !isLosing) && nowMs >= endMs) {
          const reason = this.#paths[0]?.lastError;
          const why =
            connected === undefined
              ? reason?.message
              : `namespace ${nsid} is ${connected.association.accessOf(nsid)}`;
          const message = `no path to ${nqn} for ${lossTimeoutMs} ms: ${why}${isInDoubt}`;
          throw new BlockDeviceError("io", message, connected === undefined ? reason : undefined);
        }
      }
      await this.#change(endMs - nowMs, signal);
    }
  }

  /** Waits until a path has changed, the time is over or the signal is aborted. */
  #change(ms: number, signal: AbortSignal | undefined): Promise<void> {
    return new Promise((resolve) => {
      const done = () => {
        clearTimeout(timer);
        this.#waiting.delete(done);
        signal?.removeEventListener("abort", done);
        resolve();
      };
      const timer = setTimeout(done, Math.min(Math.ceil(ms), 2 ** 31 - 1));
      this.#waiting.add(done);
      signal?.addEventListener("abort", done);
    });
  }

  #changed(): void {
    for (const wake of [...this.#waiting]) wake();
  }
}

const isOpen = (path: Path): path is OpenPath => path.association?.isLost === false;

function resolveHost(options: NvmeHostOptions) {
  const where = "NvmeHost.connect";
  const resolved = resolveOptions(where, options, { ...fields, ...secretFields });
  if (resolved.controllerSecret !== undefined && resolved.secret === undefined)
    throw new TypeError(`${where}: controllerSecret needs secret: a target proves itself to hosts that did`);
  if (resolved.secret !== undefined && resolved.hostNqn === undefined)
    throw new TypeError(`${where}: secret needs hostNqn, by which targets know it`);
  const engine = resolved.paths.findIndex((path) => "url" in path);
  if (resolved.tls !== undefined && engine >= 0)
    throw new TypeError(
      `${where}: tls is for paths of NVMe/TCP, and paths[${engine}] is that of an engine, which has security of its own`,
    );
  return { ...resolved, tls: keyOf(where, resolved, resolved.nqn) };
}

/** The key of this host for a subsystem. */
function keyOf(
  where: string,
  { tls, hostNqn }: { readonly tls: HostTls | undefined; readonly hostNqn: string | undefined },
  subsystemNqn: string,
): PreSharedKey | undefined {
  if (tls === undefined) return undefined;
  if (hostNqn === undefined)
    throw new TypeError(`${where}: tls needs hostNqn, by which targets know the key`);
  return hostKey(where, tls, { hostNqn, subsystemNqn });
}

const randomNqn = (): string => `nqn.2014-08.org.nvmexpress:uuid:${randomUUID()}`;

/** The host ID is made from the NQN: a host that connects again from another process keeps it. */
const hostIdOf = (hostNqn: string): Buffer => createHash("sha256").update(hostNqn).digest().subarray(0, 16);
