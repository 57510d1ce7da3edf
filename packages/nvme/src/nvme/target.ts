import { createHash, randomBytes, randomInt } from "node:crypto";
import {
  type Complete,
  checkedBy,
  type Field,
  fail,
  integer,
  list,
  required,
  resolveNested,
  resolveOptions,
  text,
} from "cinnabar/options";
import type { Implementation } from "cinnabar/standard";
import { ControllerAuthentication, type HostProof } from "../authentication/controller-side.ts";
import { serveCapsules } from "../calls/capsule-server.ts";
import type { BlockDevice } from "../device/block-device.ts";
import { bytesOfUuid, checkedUuid } from "../device/identity.ts";
import { type NvmeRdmaOptions, RdmaServer, type RdmaServerOptions } from "../rdma/rdma-server.ts";
import {
  ConnectionBounds,
  type ConnectionCounts,
  type ConnectionLimits,
  limitFields,
} from "../socket/connection-bounds.ts";
import { Paces, type RateCounts, type RateLimits, rateFields } from "../socket/pace.ts";
import { SocketServer } from "../socket/socket-server.ts";
import { TcpQueue } from "../tcp/queue.ts";
import { TlsConnection } from "../tcp/tls-connection.ts";
import { type NvmeTargetTls, TargetKeys, targetTlsFields } from "../tls/target-side.ts";
import { Access, accesses, type NvmeAccess } from "./access.ts";
import { type AdmittedHosts, admittedHosts, type NvmeAdmittedHost } from "./admitted-hosts.ts";
import { type Command, discoveryNqn, nqnAt } from "./command.ts";
import { type Connected, Controller, type HostFacts, type Queue } from "./controller.ts";
import {
  maxQueueEntries,
  type Namespace,
  type NamespaceUsage,
  newUsage,
  type Place,
  type SubsystemFacts,
} from "./identify.ts";
import { reservationsOf } from "./reservations.ts";
import { type Completion, type Status, status } from "./status.ts";

/** A subsystem: namespaces under one name, for the hosts that may use them. */
export interface NvmeSubsystem {
  /** Its NVMe qualified name, at most 223 bytes, such as `nqn.2026-11.com.example:disk`. */
  readonly nqn: string;
  /** The devices, whose namespaces are numbered from 1 on. */
  readonly namespaces: readonly BlockDevice[];
  /**
   * The hosts that may connect: NQNs, which any host may claim, or hosts with a secret that they must prove. `any`:
   * every host that reaches the port.
   */
  readonly hosts: readonly (string | NvmeAdmittedHost)[] | "any";
  /** How this target reaches the namespaces at first. Default: `optimized`. `setAccess` changes it. */
  readonly access?: NvmeAccess;
}

/**
 * The options of `NvmeTarget.open`. A connection is a queue: each host has one for commands of administration, and its
 * I/O queues. The limits of connections are those of NVMe/TCP, and for themselves those of calls. The rates hold for
 * each host by its NQN, over all its connections and transports.
 */
export interface NvmeTargetBase extends ConnectionLimits, RateLimits {
  /** What is served, at least one subsystem. */
  readonly subsystems: readonly NvmeSubsystem[];
  /**
   * The addresses of NVMe/TCP that the discovery service lists, at most 16. Give them where hosts reach the target by
   * others than its own, as behind NAT or a proxy. Default: the one that the host has reached.
   */
  readonly advertise?: readonly NvmeAdvertisedAddress[] | undefined;
  /**
   * How many I/O queues one controller may have, at most 1,024. A host gets fewer where fewer of `maxConnections` are
   * left, and is refused as "controller busy" where no two are left. Default: 16.
   */
  readonly maxIoQueues?: number | undefined;
  /** Memory for the data of one queue's commands, in bytes, at least 1 MiB. Default: 4 MiB. */
  readonly maxBytesPerConnection?: number;
}

/** An address that the discovery service lists. */
export interface NvmeAdvertisedAddress {
  /** An address of IPv4 or IPv6, or a name that hosts can resolve. */
  readonly host: string;
  /** Default: 4420. */
  readonly port?: number | undefined;
}

/** The options of `NvmeTarget.listen`. */
export interface NvmeTargetOptions extends NvmeTargetBase {
  /** The address to listen at. Default: `127.0.0.1`. */
  readonly host?: string | undefined;
  /** The TCP port; 0 takes a free one. Default: 4420. */
  readonly port?: number | undefined;
  /**
   * TLS 1.3 of NVMe/TCP, with a key for each host. A host that has a key connects with it alone, and only as itself.
   * NVMe/RDMA and calls have no such TLS: a host that has a key is refused there, unless it proves a secret. Default:
   * none, and nothing is encrypted.
   */
  readonly tls?: NvmeTargetTls | undefined;
}

/** A subsystem whose fields were checked. */
interface Resolved extends Omit<NvmeSubsystem, "hosts"> {
  readonly hosts: AdmittedHosts;
}

const subsystemField = checkedBy((where, name, value): Resolved => {
  const expected = "a subsystem: an object with nqn, namespaces and hosts";
  if (typeof value !== "object" || value === null) return fail(TypeError, where, name, expected, value);
  const { nqn, namespaces, hosts, access } = value as NvmeSubsystem;
  if (
    typeof nqn !== "string" ||
    !nqn.startsWith("nqn.") ||
    Buffer.byteLength(nqn) > 223 ||
    nqn === discoveryNqn
  )
    fail(TypeError, where, `${name}.nqn`, "an NVMe qualified name of at most 223 bytes", nqn);
  if (!Array.isArray(namespaces) || namespaces.length < 1 || namespaces.length > 1024)
    fail(TypeError, where, `${name}.namespaces`, "an array of 1 to 1024 devices", namespaces);
  const uuids = namespaces.map((one, index) =>
    checkedUuid(where, `${name}.namespaces[${index}].uuid`, (one as BlockDevice | undefined)?.uuid),
  );
  for (const [index, uuid] of uuids.entries())
    if (uuids.indexOf(uuid) !== index)
      throw new TypeError(`${where}: ${name}.namespaces[${index}] is a disk that is there already: ${uuid}`);
  if (access !== undefined && !accesses.includes(access))
    fail(TypeError, where, `${name}.access`, `one of ${accesses.join(", ")}`, access);
  return { ...(value as NvmeSubsystem), hosts: admittedHosts(where, `${name}.hosts`, hosts) };
});

const baseFields = {
  subsystems: required(list(subsystemField, 1, 1024)),
  advertise: list(
    checkedBy((where, name, value) => ({
      transport: "tcp" as const,
      ...resolveNested(where, name, value, { host: required(text(1, 255)), port: integer(1, 65_535, 4420) }),
    })),
    1,
    16,
  ),
  maxIoQueues: integer(1, 1024, 16),
  maxBytesPerConnection: integer(1024 * 1024, 2 ** 30, 4 * 1024 * 1024),
  ...limitFields,
  ...rateFields,
  // The queue for administration, and one for blocks.
  maxConnections: integer(2, 65_536, 256),
};

const keysField: Field<TargetKeys> = {
  resolve(where, name, value) {
    const { keys, allowPlaintext } = resolveNested(where, name, value, targetTlsFields);
    return new TargetKeys(keys, allowPlaintext);
  },
};

const fields = {
  ...baseFields,
  host: text(1, 255),
  port: integer(0, 65_535, 4420),
  tls: keysField,
};

/** What hosts have asked of a namespace since the target began. Hosts see the sums as SMART data. */
export interface NvmeNamespaceStats extends Readonly<NamespaceUsage> {
  readonly nqn: string;
  readonly nsid: number;
}

/** Counts of a target. */
export interface NvmeTargetStats extends ConnectionCounts, RateCounts {
  /** Associations with hosts. */
  readonly controllers: number;
  /** I/O queues of all controllers. */
  readonly ioQueues: number;
  readonly namespaces: readonly NvmeNamespaceStats[];
}

interface Served extends SubsystemFacts {
  readonly hosts: AdmittedHosts;
}

/**
 * An NVMe target: it serves devices to hosts of NVMe over Fabrics, by TCP, by RDMA and in calls of Cinnabar. Each
 * subsystem has namespaces, and the discovery service at the same port lists the subsystems that a host may use. Header
 * and data digests are used where the host asks for them.
 *
 * A host that is silent for its keep-alive time loses its controller: every connection ends, and no command that a
 * device has not begun is done. The host gets another controller when the devices have finished what was under way.
 */
export class NvmeTarget implements AsyncDisposable {
  readonly #server: SocketServer;
  readonly #subsystems: ReadonlyMap<string, Served>;
  readonly #controllers = new Set<Controller>();
  readonly #family = { target: randomBytes(4).readUInt32LE(), all: this.#controllers };
  readonly #connection: RdmaServerOptions;
  readonly #maxIoQueues: number;
  readonly #advertised: readonly Place[] | undefined;
  readonly #keys: TargetKeys | undefined;
  readonly #calls: ConnectionBounds;
  readonly #paces: Paces;
  readonly #rdmaServers: RdmaServer[] = [];
  /** The sizes that hosts know. */
  readonly #sizes = new Map<BlockDevice, number>();
  #isClosed = false;
  #address = { host: "", port: 0 };
  /** Random at first: hosts refuse a second target of a subsystem if its controller has the number of the first's. */
  #lastId = randomInt(0xffef);

  private constructor(
    subsystems: ReadonlyMap<string, Served>,
    limits: Complete<Omit<NvmeTargetBase, "subsystems" | "advertise" | keyof RateLimits>> & RateLimits,
    advertised: readonly Place[] | undefined,
    keys?: TargetKeys,
  ) {
    const { maxBytesPerConnection: maxBytes, maxIoQueues } = limits;
    this.#advertised = advertised;
    this.#keys = keys;
    const connect = (queue: Queue, command: Command, data: Buffer) => this.#connect(queue, command, data);
    this.#subsystems = subsystems;
    for (const { namespaces } of subsystems.values())
      for (const { device } of namespaces.values()) this.#sizes.set(device, device.bytes);
    this.#server = new SocketServer(limits, (socket, admission) => {
      const options = { connect, maxBytes, admission };
      if (keys === undefined) return new TcpQueue(socket, options);
      return new TlsConnection(socket, keys, (over) =>
        "ends" in over
          ? new TcpQueue(over.socket, { ...options, tls: over.ends })
          : new TcpQueue(socket, { ...options, tls: "none" }, over),
      );
    });
    this.#maxIoQueues = maxIoQueues;
    this.#calls = new ConnectionBounds(limits);
    this.#paces = new Paces(limits);
    this.capsules = serveCapsules(connect, this.#calls, maxBytes);
    this.#connection = { connect, maxBytes };
  }

  /**
   * Listens.
   *
   * @throws TypeError or RangeError for options that do not fit. Error with the system's error as `cause` where it
   * cannot listen.
   */
  static async listen(options: NvmeTargetOptions): Promise<NvmeTarget> {
    const where = "NvmeTarget.listen";
    const resolved = resolveOptions(where, options, fields);
    const subsystems = servedOf(where, resolved.subsystems);
    const { host = "127.0.0.1", port, tls } = resolved;
    for (const subsystem of [discoverySubsystem, ...subsystems.values()])
      tls?.check(where, subsystem.nqn, (hostNqn) => isAdmitted(subsystem, hostNqn));
    const target = new NvmeTarget(subsystems, resolved, resolved.advertise, tls);
    const address = await target.#server.listen(where, { host, port });
    if (typeof address !== "string") target.#address = address;
    return target;
  }

  /**
   * Makes a target that does not listen: engines serve its `capsules`.
   *
   * @throws TypeError or RangeError for options that do not fit.
   */
  static open(options: NvmeTargetBase): NvmeTarget {
    const where = "NvmeTarget.open";
    const { subsystems, ...limits } = resolveOptions(where, options, baseFields);
    return new NvmeTarget(servedOf(where, subsystems), limits, limits.advertise);
  }

  /**
   * The target as a service of Cinnabar, for `Engine.open({ serve: [target.capsules] })`: hosts reach it at the engine's
   * URLs. Data up to the length of a message are in the call; longer data are moved by RMA.
   */
  readonly capsules: Implementation;

  /**
   * Listens at an RDMA device as well: hosts of NVMe/RDMA have the same subsystems there. A target listens at as many
   * addresses as wanted, until `close`.
   *
   * @returns the host and the port where it listens.
   * @throws TypeError or RangeError for options that do not fit. Error with the reason as `cause` where it cannot listen:
   * this machine has no such device, the addon or libfabric is missing, or the process may not pin the memory.
   */
  async listenRdma(options: NvmeRdmaOptions): Promise<{ readonly host: string; readonly port: number }> {
    const where = "NvmeTarget.listenRdma";
    const server = await RdmaServer.listen(where, options, this.#connection);
    if (this.#isClosed) {
      await server.close();
      throw new Error(`${where}: the target is closed`);
    }
    this.#rdmaServers.push(server);
    const { host, port } = server.place;
    return { host, port };
  }

  /** The host and the port where it listens for NVMe/TCP. Without a port, the host is empty. */
  get address(): { readonly host: string; readonly port: number } {
    return this.#address;
  }

  /** Counts at this moment. */
  stats(): NvmeTargetStats {
    const all = [this.#server, ...this.#rdmaServers, this.#calls].map(({ counts }) => counts);
    const sum = (of: (counts: ConnectionCounts) => number) => all.reduce((total, one) => total + of(one), 0);
    return {
      open: sum(({ open }) => open),
      inHandshake: sum(({ inHandshake }) => inHandshake),
      refused: sum(({ refused }) => refused),
      controllers: this.#controllers.size,
      ioQueues: [...this.#controllers].reduce((total, { ioQueues }) => total + ioQueues, 0),
      ...this.#paces.counts,
      namespaces: [...this.#subsystems.values()].flatMap(({ nqn, namespaces }) =>
        [...namespaces.values()].map(({ nsid, usage }) => ({ nqn, nsid, ...usage })),
      ),
    };
  }

  /**
   * Sets how this target reaches the namespaces of a subsystem, or one of them. Use it if hosts have other paths, to
   * targets with the same devices. The target notifies its hosts, and they go to their best path. With `inaccessible`,
   * `persistent-loss` and `change`, commands that no device has begun are refused from now on. Hosts repeat them on
   * another path.
   *
   * @returns a promise that resolves when no device has an earlier command under way for this target. Then another
   * target may change the blocks.
   * @throws TypeError or RangeError for a subsystem, a namespace or a state that does not exist.
   */
  async setAccess(nqn: string, access: NvmeAccess, nsid?: number): Promise<void> {
    const where = "NvmeTarget.setAccess";
    const subsystem = this.#subsystems.get(nqn);
    if (subsystem === undefined) throw new RangeError(`${where}: there is no subsystem ${nqn}`);
    if (!accesses.includes(access)) fail(TypeError, where, "access", `one of ${accesses.join(", ")}`, access);
    const all = [...subsystem.namespaces.values()];
    const chosen = nsid === undefined ? all : all.filter((one) => one.nsid === nsid);
    if (chosen.length === 0) throw new RangeError(`${where}: ${nqn} has no namespace ${nsid}`);
    const changed = chosen.filter((one) => one.access.set(access));
    if (changed.length > 0)
      for (const controller of this.#controllers)
        if (controller.subsystem.nqn === nqn) controller.accessChanged();
    await Promise.all(chosen.map((one) => one.access.quiet()));
  }

  /**
   * Looks at the sizes of the devices, and notifies hosts of those that have another one than before. Call it when a
   * device has grown, as `FileDevice.grow` reports it.
   */
  resized(): void {
    // A device may be in several subsystems.
    const devices = [...this.#sizes].filter(([device, bytes]) => device.bytes !== bytes);
    const grown = new Set(devices.map(([device]) => device));
    for (const device of grown) this.#sizes.set(device, device.bytes);
    for (const { nqn, namespaces } of this.#subsystems.values()) {
      const changed = [...namespaces.values()].filter(({ device }) => grown.has(device));
      if (changed.length === 0) continue;
      for (const controller of this.#controllers)
        if (controller.subsystem.nqn === nqn) controller.namespacesChanged(changed.map(({ nsid }) => nsid));
    }
  }

  /** Ends every controller, waits for what devices have under way, and stops listening. The devices stay open. */
  async close(): Promise<void> {
    this.#isClosed = true;
    const ended = [...this.#controllers].map((controller) => {
      controller.end();
      return controller.ended;
    });
    const servers = [this.#server, ...this.#rdmaServers];
    await Promise.all([...servers.map((server) => server.close()), ...ended]);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #connect(queue: Queue, { entry }: Command, data: Buffer): Promise<Connected> {
    const refuse = (why: Status, offset?: number): Connected => {
      const refused: Completion = {
        status: why,
        ...(offset === undefined ? {} : { result: BigInt(offset) }),
      };
      return { refused };
    };
    const inData = 1 << 16;
    if (entry.readUInt16LE(40) !== 0) return refuse(status.connectFormat);
    const queueId = entry.readUInt16LE(42);
    const entries = entry.readUInt16LE(44) + 1;
    if (entries < 2 || entries > maxQueueEntries) return refuse(status.connectParameters, 44);
    const nqn = nqnAt(data, 256);
    const host = nqnAt(data, 512);
    if (host === undefined) return refuse(status.connectParameters, 512 | inData);
    const subsystem = nqn === undefined ? undefined : this.#find(nqn);
    if (subsystem === undefined) return refuse(status.connectParameters, 256 | inData);
    if (!isAdmitted(subsystem, host)) return refuse(status.hostNotAllowed);
    const { tls } = queue;
    const proof = subsystem.hosts === "any" ? undefined : subsystem.hosts.get(host);
    if (tls === undefined || tls === "none") {
      // Anybody could claim the name of a host that has a key. A secret is its proof where there is no TLS of this kind.
      const isProved = tls === undefined && proof !== undefined;
      if (!isProved && this.#keys?.has(host)) return refuse(status.hostNotAllowed);
    } else {
      if (tls.hostNqn !== host) return refuse(status.hostNotAllowed);
      if (tls.subsystemNqn !== nqn) return refuse(status.connectParameters, 256 | inData);
    }
    const facts = { nqn: host, id: data.toString("hex", 0, 16) };
    const controllerId = data.readUInt16LE(16);
    if (queueId === 0) {
      if (controllerId !== 0xffff) return refuse(status.connectParameters, 16 | inData);
      const wanted = { entries, keepAliveMs: entry.readUInt32LE(48) };
      return this.#newController(queue, facts, subsystem, wanted, proof);
    }
    const controller = [...this.#controllers].find(({ id }) => id === controllerId);
    const isSame =
      controller?.host.nqn === host && controller.host.id === facts.id && controller.subsystem.nqn === nqn;
    if (controller === undefined || !isSame) return refuse(status.connectParameters, 16 | inData);
    if (!controller.isReady) return refuse(status.sequence);
    const authentication = authenticationOf(proof, host, subsystem);
    const refusal = controller.add(queueId, queue, authentication?.done);
    if (refusal === status.connectParameters) return refuse(refusal, 42);
    if (refusal !== undefined) return refuse(refusal);
    return { controller, queueId, entries, authentication };
  }

  /**
   * Makes a controller when the work of the host's earlier controllers is done. That work might change blocks
   * afterwards.
   */
  async #newController(
    queue: Queue,
    host: HostFacts,
    subsystem: Served,
    { entries, keepAliveMs }: { readonly entries: number; readonly keepAliveMs: number },
    proof: HostProof | undefined,
  ): Promise<Connected> {
    const leaving = [...this.#controllers].filter(
      (one) => !one.checkAlive() && one.host.id === host.id && one.subsystem.nqn === subsystem.nqn,
    );
    await Promise.all(leaving.map(({ ended }) => ended));
    const used = new Set([...this.#controllers].map(({ id }) => id));
    const busy = { refused: { status: status.controllerBusy } };
    if (used.size >= 0xff00) return busy;
    const ioQueues = subsystem.nqn === discoveryNqn ? 0 : 1;
    if (queue.places.free < 1 + ioQueues) return busy;
    const authentication = authenticationOf(proof, host.nqn, subsystem);
    if (authentication === undefined && !queue.admit()) return busy;
    do this.#lastId = (this.#lastId % 0xffef) + 1;
    while (used.has(this.#lastId));
    const nqns = [...this.#subsystems.values()]
      .filter((one) => isAdmitted(one, host.nqn))
      .map(({ nqn }) => nqn);
    const place: Place = queue.place ?? { transport: "tcp", ...this.#address };
    const tls = this.#keys?.has(host.nqn) ? ("required" as const) : undefined;
    const places =
      place.transport === "tcp" ? (this.#advertised ?? [place]).map((one) => ({ ...one, tls })) : [place];
    const discovery = { places, nqns };
    const controller = new Controller(this.#lastId, host, subsystem, discovery, {
      ...{ keepAliveMs, adminQueue: queue, maxIoQueues: this.#maxIoQueues },
      ...{ family: this.#family, pace: this.#paces.take(host.nqn) },
    });
    if (authentication === undefined) controller.keepPlaces(ioQueues);
    else
      void authentication.done.then(() => {
        // Another host has taken the last place meanwhile.
        if (!queue.admit() || controller.keepPlaces(ioQueues) < ioQueues) queue.abort();
      });
    this.#controllers.add(controller);
    void controller.ended.then(() => {
      this.#controllers.delete(controller);
      this.#paces.giveBack(host.nqn);
    });
    return { controller, queueId: 0, entries, authentication };
  }

  #find(nqn: string): Served | undefined {
    return nqn === discoveryNqn ? discoverySubsystem : this.#subsystems.get(nqn);
  }
}

const isAdmitted = ({ hosts }: Served, nqn: string): boolean => hosts === "any" || hosts.has(nqn);

/** Each queue has its own authentication: the proof of one connection does not count for another. */
const authenticationOf = (proof: HostProof | undefined, hostNqn: string, { nqn }: Served) =>
  proof && new ControllerAuthentication({ hostNqn, subsystemNqn: nqn }, proof);

function servedOf(where: string, subsystems: readonly Resolved[]): ReadonlyMap<string, Served> {
  const served = new Map<string, Served>();
  for (const { nqn, namespaces, hosts, access } of subsystems) {
    if (served.has(nqn)) throw new TypeError(`${where}: two subsystems have the name ${nqn}`);
    served.set(nqn, { ...factsOf(nqn, namespaces, access), hosts });
  }
  return served;
}

function factsOf(
  nqn: string,
  devices: readonly BlockDevice[],
  state: NvmeAccess | undefined,
): SubsystemFacts {
  const digest = createHash("sha256").update(nqn).digest("hex");
  const namespaces = new Map<number, Namespace>();
  for (const [index, device] of devices.entries())
    namespaces.set(index + 1, {
      ...{ nsid: index + 1, device, uuid: bytesOfUuid(device.uuid) },
      ...{ access: new Access(state), usage: newUsage(), reservations: reservationsOf(device) },
    });
  return { nqn, serial: digest.slice(0, 20), model: "Cinnabar", namespaces };
}

const discoverySubsystem: Served = { ...factsOf(discoveryNqn, [], undefined), hosts: "any" };
