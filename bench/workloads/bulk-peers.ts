import type { Owner } from "../bulk/party.ts";
import { Running, type Subject, subjects } from "../bulk/subjects.ts";
import type { Figure } from "../suite/figure.ts";
import { loadAverage } from "../suite/machine.ts";
import type { Run, Workload } from "../suite/workload.ts";

const transferBytes = 1 << 20;
const peersAtOnce = 4;
const inFlight = 8;

/** What is measured of a pair of processes, or of several peers. */
interface Situation {
  readonly key: string;
  readonly title: string;
  readonly peers: number;
  readonly isBusy: boolean;
}

const situations: readonly Situation[] = [
  { key: "one", title: "one peer", peers: 1, isBusy: false },
  { key: "four", title: "four peers", peers: peersAtOnce, isBusy: false },
  { key: "busy", title: "one peer that computes", peers: 1, isBusy: true },
];

interface Measured {
  readonly gigabytesPerSecond: number;
  readonly cpuMsPerGigabyte: number;
  /** What the slowest peer had of an equal share, in percent. */
  readonly leastShare: number;
}

export const bulkPeers: Workload = {
  name: "bulk-peers",
  title: "Bulk with several peers, and with peers that compute",
  about:
    "1 MiB transfers, eight in flight in all, beside node:net: with one process; with four processes at once, which share the eight; and with one whose JavaScript computes for 50 ms at a time while its memory is read. Cinnabar serves the four with one engine, node:net with four more processes. Processor time is that of all processes; a peer that computes uses most of it.",
  families: ["bulk_peers"],
  selection: "whole",
  seconds: 30,
  async run(run) {
    const isWanted = ({ key }: Subject) =>
      ["shm", "net-unix", "tcp", "net-tcp"].includes(key) && (run.contenders?.includes(key) ?? true);
    const crowds: Crowd[] = [];
    try {
      for (const subject of subjects()) if (isWanted(subject)) crowds.push(await Crowd.start(subject));
      const figures: Figure[] = [];
      for (const situation of situations) figures.push(...(await measure(run, crowds, situation)));
      return figures;
    } finally {
      for (const crowd of crowds) await crowd.end();
    }
  },
};

async function measure(run: Run, crowds: readonly Crowd[], situation: Situation): Promise<Figure[]> {
  const turns = crowds.flatMap((crowd) =>
    crowd.ways.map(({ name, key }) => ({ crowd, way: name, key, rounds: [] as Measured[] })),
  );
  for (const { crowd, way } of turns) await crowd.move(way, situation, run.roundMs / 4);
  for (let round = 1; round <= run.rounds; round++) {
    // Who comes after whom alternates.
    const order = round % 2 === 0 ? turns.toReversed() : turns;
    for (const { crowd, way, rounds } of order)
      rounds.push(await crowd.move(way, situation, run.roundMs / 4));
    run.tell(`${situation.title}, round ${round} done`);
  }
  const load = loadAverage();
  return turns.flatMap(({ crowd, key, rounds }): Figure[] => {
    const { subject } = crowd;
    const op = key === "" ? "" : `${key}_`;
    const common = { subject: key === "" ? subject.title : `${subject.title} ${key}`, load } as const;
    const name = `${subject.key}.bulk_peers.${situation.key}.${op}`;
    const figures: Figure[] = [
      {
        ...common,
        name: `${name}gbps`,
        chart: `Bulk with ${situation.title}`,
        unit: "GB/s",
        better: "more",
        rounds: rounds.map(({ gigabytesPerSecond }) => gigabytesPerSecond),
      },
      {
        ...common,
        name: `${name}cpu_ms_per_gb`,
        chart: `Bulk with ${situation.title}: processor time of all processes`,
        unit: "ms/GB",
        better: "less",
        rounds: rounds.map(({ cpuMsPerGigabyte }) => cpuMsPerGigabyte),
      },
    ];
    if (situation.peers > 1)
      figures.push({
        ...common,
        name: `${name}least_share_percent`,
        chart: `Bulk with ${situation.title}: what the slowest has of an equal share`,
        unit: "%",
        better: "more",
        rounds: rounds.map(({ leastShare }) => leastShare),
      });
    return figures;
  });
}

/** The processes of a subject: as many peers as are ever measured at once. */
class Crowd {
  readonly subject: Subject;
  readonly #pairs: readonly Running<Owner>[];

  private constructor(subject: Subject, pairs: readonly Running<Owner>[]) {
    this.subject = subject;
    this.#pairs = pairs;
  }

  static async start(subject: Subject): Promise<Crowd> {
    const pairs: Running<Owner>[] = [];
    const crowd = new Crowd(subject, pairs);
    try {
      for (let peer = 0; peer < peersAtOnce; peer++) {
        // A second party that has the clock joins the first of the first pair; a first that has it needs one of its own.
        const [first] = pairs;
        const joins = first !== undefined && subject.driver === 1;
        const pair = joins ? await first.joined() : await Running.start<Owner>(subject);
        pairs.push(pair);
        // One after the other: they look at the same memory.
        await pair.prepare(transferBytes, inFlight);
      }
      return crowd;
    } catch (error) {
      await crowd.end();
      throw error;
    }
  }

  get ways() {
    return this.subject.ways.filter(({ isMain }) => isMain);
  }

  async move(way: string, { peers, isBusy }: Situation, durationMs: number): Promise<Measured> {
    const pairs = this.#pairs.slice(0, peers);
    if (isBusy) for (const { driver } of pairs) await driver.ask("compute", true);
    const before = await this.#cpuUs();
    const measured = await Promise.all(
      pairs.map(({ driver }) => driver.ask("measure", way, inFlight / peers, durationMs)),
    );
    const cpuMs = ((await this.#cpuUs()) - before) / 1000;
    if (isBusy) for (const { driver } of pairs) await driver.ask("compute", false);
    const bytes = measured.map(({ transfers }) => transfers * transferBytes);
    const total = bytes.reduce((sum, each) => sum + each, 0);
    const elapsedMs = Math.max(...measured.map((one) => one.elapsedMs));
    return {
      gigabytesPerSecond: total / elapsedMs / 1e6,
      cpuMsPerGigabyte: cpuMs / (total / 1e9),
      leastShare: (100 * Math.min(...bytes)) / (total / peers),
    };
  }

  async end(): Promise<void> {
    for (const pair of this.#pairs.toReversed()) await pair.end();
  }

  async #cpuUs(): Promise<number> {
    const each = await Promise.all(this.#pairs.map((pair) => pair.cpuUs()));
    return each.reduce((sum, us) => sum + us, 0);
  }
}
