import type { FanOut } from "../group/by-hand.ts";
import type { GroupMember, Tree } from "../group/member.ts";
import type { Servers } from "../group/servers.ts";
import type { QuantilesUs } from "../group/timing.ts";
import { Child } from "../suite/child.ts";
import { type Figure, quantile, shares } from "../suite/figure.ts";
import { loadAverage } from "../suite/machine.ts";
import { median } from "../suite/statistics.ts";
import { warmUp } from "../suite/warm-up.ts";
import type { Run, Workload } from "../suite/workload.ts";

const module = (name: string) => new URL(`../group/${name}.js`, import.meta.url);
const members = 16;
const warmUpCallers = 64;
const fabrics = ["shm", "tcp"] as const;
const keys = ["grpc-unix", "grpc-tcp"] as const;
const trees: Readonly<Record<string, Tree>> = {
  flat: { kind: "flat" },
  binomial: { kind: "knomial", ratio: 2 },
  "4-nomial": { kind: "knomial", ratio: 4 },
};

/** Calls of all members of a group, beside the same written by hand with unary calls. */
export const collectives: Workload = {
  name: "collectives",
  title: "Calls of a whole group",
  about: `A call of all ${members} members of a group, each a process, whose answers are reduced to one; barriers of them; and the same calls by hand: ${members - 1} unary calls of grpc-js at a time, whose answers the caller reduces. One call after the other. All processes share the processors of one machine, so times are mostly those of the processors.`,
  families: ["group"],
  selection: "quick",
  seconds: 45,
  run: (run) => measureCollectives(run, members),
};

/** What takes its turn in each round. */
interface Subject {
  readonly name: string;
  readonly subject: string;
  readonly chart: string;
  /** How much it does in a second, with many callers where it can have them. */
  rate(durationMs: number): Promise<number>;
  measure(durationMs: number): Promise<QuantilesUs>;
}

export async function measureCollectives(run: Run, size: number): Promise<Figure[]> {
  const processes = new Processes();
  try {
    const subjects = [...(await ofGroup(run, size, processes)), ...(await byHand(size, processes))];
    run.tell(`${processes.count} processes started`);
    // With many callers: each process gets few calls, and needs thousands.
    for (const { rate } of subjects) await warmUp(run.roundMs, rate);
    const rounds = subjects.map((): QuantilesUs[] => []);
    for (let round = 0; round < run.rounds; round++)
      for (const [index, { measure }] of subjects.entries()) rounds[index]?.push(await measure(run.roundMs));
    return subjects.flatMap((subject, index) => figuresOf(subject, rounds[index] ?? []));
  } finally {
    await processes.end();
  }
}

/** Processes that are started many at a time, and ended together. */
class Processes {
  readonly #started: Child<FanOut | GroupMember | Servers>[] = [];

  get count(): number {
    return this.#started.length;
  }

  /** One for each of the arguments, in their order. Waits for all of them, also where one fails. */
  async start<P extends FanOut | GroupMember | Servers>(
    file: string,
    args: readonly (readonly unknown[])[],
  ): Promise<Child<P>[]> {
    const starts = args.map((each, index) => Child.start<P>(`${file} ${index}`, module(file), each));
    const settled = await Promise.allSettled(starts);
    for (const each of settled) if (each.status === "fulfilled") this.#started.push(each.value);
    return Promise.all(starts);
  }

  async end(): Promise<void> {
    await Promise.all(this.#started.map((child) => child.end()));
  }
}

async function ofGroup(run: Run, size: number, processes: Processes): Promise<Subject[]> {
  const names = Array.from({ length: size }, (_, rank) => [`${process.pid}-${rank}`]);
  const group = await processes.start<GroupMember>("member", names);
  const urls = await Promise.all(group.map((member) => member.ask("urls")));
  const [root] = group as [Child<GroupMember>, ...Child<GroupMember>[]];
  const subjects: Subject[] = [];
  for (const [place, fabric] of fabrics.entries()) {
    const members = urls.map((each) => each[place] ?? "");
    await Promise.all(group.map((member, rank) => member.ask("join", fabric, rank, members)));
    const named = (name: string, tree: string) => ({
      name: tree === "" ? name : `${name}.${tree}`,
      subject: `Cinnabar ${fabric}${tree === "" ? "" : `, ${tree}`}`,
    });
    const broadcast = (name: string, tree: Tree): Subject => ({
      ...named(`${fabric}.group.broadcast${size}`, name),
      chart: `Broadcast to ${size} members, answers reduced`,
      rate: (durationMs) => root.ask("rate", fabric, tree, warmUpCallers, durationMs),
      measure: (durationMs) => root.ask("broadcast", fabric, tree, durationMs),
    });
    const go = async (tree: Tree, count: number) =>
      (await Promise.all(group.map((member) => member.ask("barriers", fabric, tree, count))))[0] ?? [];
    const goFor = async (tree: Tree, durationMs: number) =>
      go(tree, Math.ceil((durationMs * 1000) / quantile(await go(tree, 3), 0.5)));
    const barrier: Subject = {
      ...named(`${fabric}.group.barrier${size}`, ""),
      chart: `Barrier of ${size} members`,
      rate: async (durationMs) => 1e6 / quantile(await goFor("auto", durationMs), 0.5),
      measure: (durationMs) => goFor("auto", durationMs),
    };
    subjects.push(broadcast("", "auto"));
    if (run.quick) continue;
    subjects.push(barrier);
    for (const [name, tree] of Object.entries(trees)) subjects.push(broadcast(name, tree));
  }
  return subjects;
}

async function byHand(size: number, processes: Processes): Promise<Subject[]> {
  const names = Array.from({ length: size - 1 }, (_, index) => [keys, `${process.pid}-server-${index}`]);
  const servers = await processes.start<Servers>("servers", names);
  const addresses = await Promise.all(servers.map((server) => server.ask("addresses")));
  const callers = keys.map((key) => [key, `${process.pid}-caller`]);
  const subjects: Subject[] = [];
  for (const [place, caller] of (await processes.start<FanOut>("by-hand", callers)).entries()) {
    const key = keys[place] ?? "";
    const theirs = addresses.map((each) => each[place] ?? "");
    await caller.ask("connect", theirs);
    subjects.push({
      name: `${key}.group.broadcast${size}`,
      subject: `${key.replace("grpc-", "grpc-js ")}, by hand`,
      chart: `Broadcast to ${size} members, answers reduced`,
      rate: (durationMs) => caller.ask("rate", warmUpCallers, durationMs),
      measure: (durationMs) => caller.ask("broadcast", durationMs),
    });
  }
  return subjects;
}

function figuresOf({ name, subject, chart }: Subject, rounds: readonly QuantilesUs[]): Figure[] {
  const common = { subject, unit: "µs", better: "less", load: loadAverage() } as const;
  const at = (share: number) => rounds.map((quantiles) => quantile(quantiles, share));
  return [
    {
      ...common,
      name: `${name}.p50_us`,
      chart: `${chart}: median`,
      rounds: at(0.5),
      quantiles: shares.map((share) => median(at(share))),
    },
    { ...common, name: `${name}.p99_us`, chart: `${chart}: 99th percentile`, rounds: at(0.99) },
  ];
}
