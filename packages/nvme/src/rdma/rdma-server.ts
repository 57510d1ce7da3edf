import type { Complete } from "cinnabar/options";
import { integer, required, resolveOptions, text } from "cinnabar/options";
import type { Command } from "../nvme/command.ts";
import type { Connected, Queue } from "../nvme/controller.ts";
import { maxTransferBytes, type Place } from "../nvme/identify.ts";
import {
  ConnectionBounds,
  type ConnectionCounts,
  type ConnectionLimits,
  limitFields,
} from "../socket/connection-bounds.ts";
import { DataMemory } from "./data-memory.ts";
import { RdmaQueue, type RdmaService } from "./queue.ts";
import { type QueuePair, QueuePairListener } from "./queue-pairs.ts";

/** The options of `NvmeTarget.listenRdma`. */
export interface NvmeRdmaOptions extends ConnectionLimits {
  /** The address of an RDMA device of this machine, such as `10.0.0.7`. */
  readonly host: string;
  /** The port, in RDMA's own space of ports; 0 takes a free one. Default: 4420. */
  readonly port?: number | undefined;
  /** Memory for the data of all commands at a time, in bytes, pinned as long as it listens. Default: 32 MiB. */
  readonly dataBytes?: number | undefined;
}

const fields = {
  ...limitFields,
  maxConnections: integer(2, 65_536, 256),
  host: required(text(1, 255)),
  port: integer(0, 65_535, 4420),
  dataBytes: integer(2 * maxTransferBytes, 2 ** 32, 32 * 1024 * 1024),
};

export interface RdmaServerOptions {
  readonly connect: (queue: Queue, command: Command, data: Buffer) => Promise<Connected>;
  readonly maxBytes: number;
}

/** Listens for hosts of NVMe/RDMA, bounds connections, and ends them. */
export class RdmaServer {
  readonly place: Place;
  readonly #listener: QueuePairListener;
  readonly #bounds: ConnectionBounds;
  readonly #service: RdmaService;
  readonly #queues = new Set<RdmaQueue>();
  readonly #releaseData: () => void;
  #closed: Promise<void> | undefined;

  private constructor(
    listener: QueuePairListener,
    bounds: ConnectionBounds,
    { dataBytes, stallTimeoutMs }: Complete<Pick<NvmeRdmaOptions, "dataBytes" | "stallTimeoutMs">>,
    { connect, maxBytes }: RdmaServerOptions,
  ) {
    this.#listener = listener;
    this.#bounds = bounds;
    const memory = listener.register(dataBytes);
    this.#releaseData = () => memory.release();
    this.place = { transport: "rdma", host: listener.host, port: listener.port };
    this.#service = {
      ...{ place: this.place, places: bounds.places },
      data: new DataMemory(memory),
      maxBytes,
      stallTimeoutMs,
      connect,
      register: (bytes) => listener.register(bytes),
    };
  }

  /** @throws as `NvmeTarget.listenRdma`. */
  static async listen(
    where: string,
    options: NvmeRdmaOptions,
    service: RdmaServerOptions,
  ): Promise<RdmaServer> {
    const { host, port, ...limits } = resolveOptions(where, options, fields);
    // A connection that is refused because there is no room exists for a moment as well.
    const maxPairs = limits.maxConnections + limits.maxHandshakes + 1;
    let server: RdmaServer | undefined;
    const onRequest = (pair: QueuePair) => (server === undefined ? pair.close() : server.#accept(pair));
    try {
      const listener = await QueuePairListener.listen({ host, port, maxPairs, onRequest });
      try {
        server = new RdmaServer(listener, new ConnectionBounds(limits), limits, service);
      } catch (error) {
        listener.close();
        throw error;
      }
    } catch (cause) {
      throw new Error(`${where}: cannot listen: ${(cause as Error).message}`, { cause });
    }
    return server;
  }

  get counts(): ConnectionCounts {
    return this.#bounds.counts;
  }

  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  async #close(): Promise<void> {
    const queues = [...this.#queues];
    for (const queue of queues) queue.end();
    this.#listener.close();
    await Promise.all(queues.map(({ settled }) => settled));
    this.#releaseData();
  }

  #accept(pair: QueuePair): void {
    const bounded = this.#bounds.begin(() => pair.close());
    let queue: RdmaQueue;
    try {
      queue = new RdmaQueue(pair, this.#service, bounded);
    } catch {
      return; // the device or the system has no room for it
    }
    this.#queues.add(queue);
    void queue.settled.then(() => this.#queues.delete(queue));
  }
}
