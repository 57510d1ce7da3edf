import { parseArgs } from "node:util";

export interface Options {
  readonly quick: boolean;
  /** Measure nothing: draw the pictures and tables of README and guide from bench/results/history.json. */
  readonly figures: boolean;
  /** The workloads to run, by name; those of a whole run when none is named. */
  readonly only: readonly string[];
  readonly rounds: number;
  readonly roundMs: number;
  /** The contenders to measure, by key, where a workload has several; all of them when none is named. */
  readonly contenders?: readonly string[];
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
  /** What that device is called in the names of ratios. */
  readonly device?: string;
}

export const usage = `npm run bench [-- [WORKLOAD…] [OPTION…]]

  --quick            only what the named ratios need, in at most 90 s
  --figures          measure nothing; draw the tables of README and guide,
                     and its pictures, from bench/results/history.json
  --json FILE        write the results as data
  --html FILE        write the report
  --against FILE     say what moved beyond noise since those results
  --record RELEASE   append this run's ratios to bench/results/history.json
  --contenders A,B   only these, such as shm,net-unix
  --rounds N         how often each contender is measured in each way
  --round-ms MS      for how long each time
  --machine NAME     what this machine is called in the report
  --verbs HOST       measure over the RDMA device of that address too, and over tcp at it
  --device NAME      what that device is called in the names of ratios, such as rxe`;

/**
 * @param workloads the names there are
 * @param contenders the keys there are
 * @param overDevice those of them that need an RDMA device
 * @throws Error that names the option or the workload that is wrong
 */
export function parseOptions(
  args: readonly string[],
  workloads: readonly string[],
  contenders: readonly string[],
  overDevice: readonly string[] = [],
): Options {
  const { values, positionals } = parseArgs({
    args: [...args],
    allowPositionals: true,
    options: {
      quick: { type: "boolean", default: false },
      figures: { type: "boolean", default: false },
      json: { type: "string" },
      html: { type: "string" },
      against: { type: "string" },
      record: { type: "string" },
      contenders: { type: "string" },
      rounds: { type: "string" },
      "round-ms": { type: "string" },
      machine: { type: "string" },
      verbs: { type: "string" },
      device: { type: "string" },
    },
  });
  const { quick, figures, rounds, "round-ms": roundMs, contenders: chosen, ...texts } = values;
  checkAreKnown("workload", positionals, workloads);
  const only = chosen?.split(",");
  checkAreKnown("contender", only ?? [], contenders);
  const deviceless = only?.find((key) => values.verbs === undefined && overDevice.includes(key));
  if (deviceless !== undefined) throw new Error(`The contender "${deviceless}" needs --verbs HOST`);
  for (const [option, text] of Object.entries(texts)) {
    if (text === "") throw new Error(`--${option} is empty`);
  }
  return {
    ...texts,
    quick,
    figures,
    only: positionals,
    ...(only === undefined ? {} : { contenders: only }),
    rounds: integer("--rounds", rounds ?? "5"),
    roundMs: integer("--round-ms", roundMs ?? (quick ? "200" : "250")),
  };
}

function checkAreKnown(kind: string, names: readonly string[], known: readonly string[]): void {
  for (const name of names) {
    if (!known.includes(name))
      throw new Error(`There is no ${kind} "${name}"; there are ${known.join(", ")}`);
  }
}

function integer(option: string, text: string): number {
  const value = Number(text);
  if (Number.isInteger(value) && value >= 1) return value;
  throw new Error(`${option} wants an integer from 1 on, not "${text}"`);
}
