import type { Attributes } from "@opentelemetry/api";
import type { EngineStats, StatsOptions } from "cinnabar/inspect";
import type { BalancedPeer, Engine, Peer, PeerState } from "cinnabar/standard";
import { own } from "../conventions.ts";
import { metrics } from "./metric.ts";
import { Totals, totalsOf } from "./totals.ts";

/** What metrics can be read from. */
export type MetricSource = Engine | LanesSource | Peer | BackendsSource | DisksSource | NbdSource;

/** What `NvmeTarget` of `cinnabar-nvme` gives. */
export interface DisksSource {
  readonly capsules: unknown;
  stats(): {
    readonly controllers: number;
    readonly ioQueues: number;
    readonly refused: number;
    readonly namespaces: readonly {
      readonly nqn: string;
      readonly nsid: number;
      readonly reads: number;
      readonly readBytes: number;
      readonly writes: number;
      readonly writtenBytes: number;
    }[];
  };
}

/** What `serveNbd` of `cinnabar-nvme` gives. */
export interface NbdSource {
  readonly uris: readonly string[];
  stats(): {
    readonly reads: number;
    readonly writes: number;
    readonly others: number;
    readonly failed: number;
    readonly open: number;
    readonly inHandshake: number;
    readonly refused: number;
    readonly waiting: number;
    readonly waitingBytes: number;
  };
}

/** What `openLanes` of `cinnabar-lanes` gives. */
export interface LanesSource {
  readonly lanes: readonly unknown[];
  stats(options: StatsOptions): Promise<{
    readonly dispatcher: EngineStats;
    readonly lanes: readonly {
      readonly lane: number;
      readonly state: string;
      readonly deaths: number;
      readonly incarnation: bigint;
      readonly engine: EngineStats | undefined;
    }[];
  }>;
}

/** A balanced peer, or what `connectLanes` of `cinnabar-lanes` gives. */
export type BackendsSource = Pick<BalancedPeer, "backends">;

/** Reads one source each time that metrics are collected. Its counters never fall, also when a lane was replaced. */
export interface Reader {
  /** For sources in this thread. */
  readNow?(): Totals;
  read(): Promise<Totals>;
}

export function readerOf(source: MetricSource, perLane: boolean): Reader {
  if ("backends" in source) return new BackendReader(() => source.backends);
  if ("capsules" in source) return new DisksReader(source);
  if ("uris" in source) return new NbdReader(source);
  if ("lanes" in source) return new LanesReader(source, perLane);
  if ("incarnation" in source && "state" in source && "url" in source)
    return new BackendReader(() => [{ url: source.url, state: source.state }]);
  return new EngineReader(source);
}

/** An engine of this thread. */
class EngineReader implements Reader {
  readonly #engine: Engine;

  constructor(engine: Engine) {
    this.#engine = engine;
  }

  async read(): Promise<Totals> {
    return this.readNow();
  }

  readNow(): Totals {
    return totalsOf(this.#engine.stats({ histograms: true }));
  }
}

/** The counters of the engines that have had a lane, one after the other. */
class LaneHistory {
  /** The counts of the engines that are gone. */
  readonly #past = new Totals();
  #incarnation: bigint | undefined;
  #latest = new Totals();

  /** `stats`: undefined when the lane does not answer. What it said last counts then. */
  update(incarnation: bigint, stats: EngineStats | undefined): void {
    if (stats === undefined) return;
    if (this.#incarnation !== undefined && this.#incarnation !== incarnation)
      this.#past.merge(this.#latest, {}, "counters");
    this.#incarnation = incarnation;
    this.#latest = totalsOf(stats);
  }

  /** Gauges of an engine that does not answer would be old: they are left out. */
  addTo(totals: Totals, attributes: Attributes, answers: boolean): void {
    totals.merge(this.#past, attributes);
    totals.merge(this.#latest, attributes, answers ? "all" : "counters");
  }
}

/** The dispatcher and the worker lanes of `openLanes`. */
class LanesReader implements Reader {
  readonly #lanes: LanesSource;
  readonly #perLane: boolean;
  readonly #histories = new Map<number, LaneHistory>();

  constructor(lanes: LanesSource, perLane: boolean) {
    this.#lanes = lanes;
    this.#perLane = perLane;
  }

  async read(): Promise<Totals> {
    const { dispatcher, lanes } = await this.#lanes.stats({ histograms: true });
    const totals = new Totals();
    totals.merge(totalsOf(dispatcher), this.#attributes("dispatcher"));
    for (const { lane, state, deaths, incarnation, engine } of lanes) {
      let history = this.#histories.get(lane);
      if (history === undefined) {
        history = new LaneHistory();
        this.#histories.set(lane, history);
      }
      history.update(incarnation, engine);
      history.addTo(totals, this.#attributes(String(lane)), engine !== undefined);
      totals.add(metrics.lanes, 1, { [own.state]: state });
      totals.add(metrics.laneDeaths, deaths);
    }
    return totals;
  }

  #attributes(lane: string): Attributes {
    return this.#perLane ? { [own.lane]: lane } : {};
  }
}

/** The disks of a target of NVMe. */
class DisksReader implements Reader {
  readonly #target: DisksSource;

  constructor(target: DisksSource) {
    this.#target = target;
  }

  async read(): Promise<Totals> {
    return this.readNow();
  }

  readNow(): Totals {
    const totals = new Totals();
    const { controllers, ioQueues, refused, namespaces } = this.#target.stats();
    totals.add(metrics.diskControllers, controllers);
    totals.add(metrics.diskQueues, ioQueues);
    totals.add(metrics.diskRefused, refused);
    for (const { nqn, nsid, reads, readBytes, writes, writtenBytes } of namespaces)
      for (const [operation, count, bytes] of [
        ["read", reads, readBytes] as const,
        ["write", writes, writtenBytes] as const,
      ]) {
        const attributes = { [own.disk]: `${nqn} ${nsid}`, [own.operation]: operation };
        totals.add(metrics.diskOperations, count, attributes);
        totals.add(metrics.diskBytes, bytes, attributes);
      }
    return totals;
  }
}

/** A server of NBD, with all its exports. */
class NbdReader implements Reader {
  readonly #server: NbdSource;

  constructor(server: NbdSource) {
    this.#server = server;
  }

  async read(): Promise<Totals> {
    return this.readNow();
  }

  readNow(): Totals {
    const totals = new Totals();
    const stats = this.#server.stats();
    for (const [operation, count] of [
      ["read", stats.reads] as const,
      ["write", stats.writes] as const,
      ["other", stats.others] as const,
    ])
      totals.add(metrics.nbdRequests, count, { [own.operation]: operation });
    totals.add(metrics.nbdFailed, stats.failed);
    totals.add(metrics.nbdWaiting, stats.waiting);
    totals.add(metrics.nbdWaitingSize, stats.waitingBytes);
    totals.add(metrics.nbdConnections, stats.open, { [own.state]: "open" });
    totals.add(metrics.nbdConnections, stats.inHandshake, { [own.state]: "handshake" });
    totals.add(metrics.nbdRefused, stats.refused);
    return totals;
  }
}

const peerStates = ["connecting", "connected", "suspect", "draining", "lost", "closed"] as const;

interface Backend {
  readonly url: string;
  readonly state: PeerState;
}

/** Backends that the program has configured. They have no counters of their own. */
class BackendReader implements Reader {
  readonly #backends: () => readonly Backend[];

  constructor(backends: () => readonly Backend[]) {
    this.#backends = backends;
  }

  async read(): Promise<Totals> {
    const totals = new Totals();
    for (const { url, state } of this.#backends())
      for (const each of peerStates)
        totals.add(metrics.backendState, each === state ? 1 : 0, {
          "server.address": url,
          [own.state]: each,
        });
    return totals;
  }
}
