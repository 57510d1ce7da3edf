import { parseArgs } from "node:util";

export interface Options {
  readonly quick: boolean;
  /** The workloads to run, by name; all of them when none is named. */
  readonly only: readonly string[];
  readonly rounds: number;
  readonly roundMs: number;
  /** Files to write. */
  readonly json?: string;
  readonly html?: string;
  /** Results of an earlier run, to say what moved. */
  readonly against?: string;
  /** The release under which the ratios go to the history. */
  readonly record?: string;
  /** What the machine is called in the report. */
  readonly machine?: string;
  /** The address of an RDMA device. */
  readonly verbs?: string;
}

export const usage = `npm run bench [-- [WORKLOAD…] [OPTION…]]

  --quick            only what the named ratios need, in less than 55 s
  --json FILE        write the results as data
  --html FILE        write the report
  --against FILE     say what moved beyond noise since those results
  --record RELEASE   append this run's ratios to bench/results/history.json
  --rounds N         how often each contender is measured in each way
  --round-ms MS      for how long each time
  --machine NAME     what this machine is called in the report
  --verbs HOST       measure over the RDMA device of that address too`;

/**
 * @param workloads the names there are
 * @throws Error that names the option or the workload that is wrong
 */
export function parseOptions(args: readonly string[], workloads: readonly string[]): Options {
  const { values, positionals } = parseArgs({
    args: [...args],
    allowPositionals: true,
    options: {
      quick: { type: "boolean", default: false },
      json: { type: "string" },
      html: { type: "string" },
      against: { type: "string" },
      record: { type: "string" },
      rounds: { type: "string" },
      "round-ms": { type: "string" },
      machine: { type: "string" },
      verbs: { type: "string" },
    },
  });
  const { quick, rounds, "round-ms": roundMs, ...texts } = values;
  for (const name of positionals) {
    if (!workloads.includes(name))
      throw new Error(`There is no workload "${name}"; there are ${workloads.join(", ")}`);
  }
  for (const [option, text] of Object.entries(texts)) {
    if (text === "") throw new Error(`--${option} is empty`);
  }
  return {
    ...texts,
    quick,
    only: positionals,
    rounds: integer("--rounds", rounds ?? (quick ? "3" : "5")),
    roundMs: integer("--round-ms", roundMs ?? (quick ? "300" : "500")),
  };
}

function integer(option: string, text: string): number {
  const value = Number(text);
  if (Number.isInteger(value) && value >= 1) return value;
  throw new Error(`${option} wants an integer from 1 on, not "${text}"`);
}
