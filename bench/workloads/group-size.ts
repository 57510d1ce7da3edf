import { completionMs, type TreeShape } from "../../packages/group/src/collective/tree.ts";
import { crash, quiet } from "../../packages/group/test/simulate/crash-gates.ts";
import type { Figure } from "../suite/figure.ts";
import { loadAverage } from "../suite/machine.ts";
import type { Run, Workload } from "../suite/workload.ts";

/** Numbers of members. */
export interface GroupSizes {
  readonly calls: readonly number[];
  readonly quiet: readonly number[];
  /** A simulated crash of one of 10,000 takes half a minute and half a gigabyte. */
  readonly crash: readonly number[];
}

const full: GroupSizes = {
  calls: [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 10_000],
  quiet: [16, 64, 256, 1024, 4096, 10_000],
  crash: [16, 128, 1024, 10_000],
};

const trees: Readonly<Record<string, TreeShape>> = {
  flat: { kind: "flat" },
  binomial: { kind: "knomial", ratio: 2 },
  "4-nomial": { kind: "knomial", ratio: 4 },
  "8-nomial": { kind: "knomial", ratio: 8 },
  "8-ary": { kind: "kary", ratio: 8 },
};
/** About what a message costs between processes of one host. */
const message = { overheadMs: 0.02, latencyMs: 0.05 };
const quietPeriods = 10;
/** What is simulated has no limit here: `npm run simulate` judges it. */
const noLimits = { meanRest: Number.POSITIVE_INFINITY, maxRest: Number.POSITIVE_INFINITY };

/** What a group costs the more members it has, up to more than a machine can hold. */
export const groupSize: Workload = {
  name: "group-size",
  title: "Groups by their size",
  about: `By simulation, with up to 10,000 members: a call of all members and its reduced answer along each tree, where a message keeps a process busy for ${message.overheadMs * 1000} µs and is on its way for ${message.latencyMs * 1000} µs; messages of the failure detector in a group that is quiet; after how many of its periods all members know of one that crashed (one seed).`,
  families: ["group_size"],
  selection: "named",
  seconds: 40,
  run: async (run) => measureGroupSize(run, full),
};

export function measureGroupSize(run: Run, sizes: GroupSizes): Figure[] {
  const figures: Figure[] = [];
  const add = (members: number, figure: Omit<Figure, "at" | "better" | "load">) =>
    figures.push({
      ...figure,
      better: "less",
      at: { axis: "members", value: members },
      load: loadAverage(),
    });
  for (const [tree, shape] of Object.entries(trees))
    for (const members of sizes.calls)
      add(members, {
        name: `group_size.call.${tree}.${members}.ms`,
        subject: tree,
        chart: "A call of all members with its reduced answer, by simulation",
        unit: "ms",
        rounds: [completionMs(shape, members, message)],
      });
  for (const members of sizes.quiet) {
    const [messages] = quiet([members], quietPeriods);
    run.tell(`a quiet group of ${members.toLocaleString("en-US")} simulated`);
    add(members, {
      name: `group_size.quiet.${members}.messages`,
      subject: "the failure detector",
      chart: "Messages of a member in a period, by simulation",
      unit: "count",
      rounds: [messages?.value ?? Number.NaN],
    });
  }
  for (const members of sizes.crash) {
    const all = crash(members, 1, noLimits).find(({ name }) => name === "S3 all know, max");
    run.tell(`a crash of one of ${members.toLocaleString("en-US")} simulated`);
    add(members, {
      name: `group_size.crash.${members}.periods`,
      subject: "the failure detector",
      chart: "Periods until all members know of a crash, by simulation",
      unit: "count",
      rounds: [all?.value ?? Number.NaN],
    });
  }
  return figures;
}
