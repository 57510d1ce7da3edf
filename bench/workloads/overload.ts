import type { EngineOptions } from "cinnabar";
import type { AdmissionOptions } from "cinnabar/options";
import type { Fared, Job, OverloadCallers } from "../overload/callers.ts";
import type { OverloadServer } from "../overload/server.ts";
import { Child } from "../suite/child.ts";
import type { Figure } from "../suite/figure.ts";
import { loadAverage } from "../suite/machine.ts";
import type { Run, Workload } from "../suite/workload.ts";

const server = new URL("../overload/server.js", import.meta.url);
const callers = new URL("../overload/callers.js", import.meta.url);

/** The two that hold load back. Each can be made to hold nothing back by its options. */
const controls = ["credits", "admission"] as const;
type Control = (typeof controls)[number];

/** Which of them are at work. */
const variants: readonly (readonly Control[])[] = [controls, ["credits"], ["admission"], []];

const places = 8;
/** Callers in engines of their own, in one process. */
const engines = 4;
const loads = [1, 2, 4];

/** Sizes of a full run, and of a trial of the workload itself. */
export interface OverloadSizes {
  readonly loadMs: number;
  readonly burstCalls: number;
  readonly burstMs: number;
  readonly variants: number;
}

const full: OverloadSizes = { loadMs: 1_800, burstCalls: 40_000, burstMs: 3_000, variants: variants.length };

/** What each of the two controls of overload is for. */
export const overload: Workload = {
  name: "overload",
  title: "Overload, with each of its controls switched off in turn",
  about:
    "A server over shm is asked for 1, 2 and 4 times what it can do, by four clients that do not wait for each other's answers; calls have half a second. What few credits (C) and the limits of the admission queue (A) do is seen by which of them are at work. " +
    "waiting: 8 handlers at once, 10 ms each. computing: handlers of 1 ms on the server's only thread. burst: 40,000 calls of 4 KiB at once, to handlers that wait for 3 s, of which any number may run.",
  families: ["overload"],
  selection: "named",
  seconds: 600,
  run: (run) => measureOverload(run, full),
};

type Scenario = "waiting" | "computing" | "burst";

const jobs: Readonly<Record<Scenario, Job>> = {
  waiting: { kind: "wait", ms: 10, timeoutMs: 500, bytes: 64 },
  computing: { kind: "compute", ms: 1, timeoutMs: 500, bytes: 64 },
  burst: { kind: "wait", ms: 0, timeoutMs: 60_000, bytes: 4096 },
};

/** Calls a second that the server can do at best: loads are multiples of it, the same for all variants. */
const capacities = { waiting: 750, computing: 850 };

const boundless: AdmissionOptions = {
  maxQueued: 10_000_000,
  maxQueuedBytes: Number.MAX_SAFE_INTEGER,
  maxQueueMs: 2_147_483_647,
  targetQueueMs: 2_147_483_647,
};
const few: EngineOptions["limits"] = { maxRequests: 16 };
const uncounted: EngineOptions["limits"] = { maxRequests: 2 ** 19 };

export async function measureOverload(run: Run, sizes: OverloadSizes): Promise<Figure[]> {
  const figures = new Figures();
  for (let round = 0; round < Math.min(run.rounds, 5); round++) {
    for (const active of variants.slice(0, sizes.variants)) {
      const key = nameOf(active);
      for (const scenario of ["waiting", "computing"] as const) {
        const told = await underLoad(figures, scenario, active, sizes);
        run.tell(`${scenario}, ${key}: ${told}`);
      }
      // Nothing waits for a place there: admission has no part in it.
      if (active.includes("admission") || active.length === 0)
        run.tell(`burst, ${key}: ${await underBurst(figures, active, sizes)}`);
    }
  }
  return figures.all;
}

/** C and A for what is at work. */
function nameOf(active: readonly Control[]): string {
  return active.length === 0 ? "none" : active.map((control) => control.charAt(0).toUpperCase()).join("");
}

async function withBoth<T>(
  active: readonly Control[],
  admission: AdmissionOptions,
  body: (server: Child<OverloadServer>, callers: Child<OverloadCallers>) => Promise<T>,
): Promise<T> {
  const name = `overload ${nameOf(active)}`;
  const listen = `shm://cinnabar-overload-${process.pid}`;
  const limits = active.includes("credits") ? few : uncounted;
  const serving = await Child.start<OverloadServer>(`${name}, server`, server, [listen, admission, limits]);
  let calling: Child<OverloadCallers> | undefined;
  try {
    const args = [await serving.ask("url"), engines];
    calling = await Child.start<OverloadCallers>(`${name}, callers`, callers, args);
    return await body(serving, calling);
  } finally {
    await calling?.end();
    await serving.end();
  }
}

function underLoad(
  figures: Figures,
  scenario: "waiting" | "computing",
  active: readonly Control[],
  { loadMs }: OverloadSizes,
): Promise<string> {
  const limits = active.includes("admission") ? {} : boundless;
  return withBoth(active, { maxConcurrent: places, ...limits }, async (serving, calling) => {
    const job = jobs[scenario];
    const capacity = capacities[scenario];
    await calling.ask("closedLoop", places, job, loadMs / 3);
    await serving.ask("served");
    const told: string[] = [];
    for (const times of loads) {
      const fared = await calling.ask("openLoop", capacity * times, job, loadMs);
      const { begun, grownBytes } = await serving.ask("served");
      figures.add(scenario, active, `x${times}`, `${times} times the capacity`, fared, {
        goodput: (100 * fared.perSecond) / capacity,
        begun_in_vain: begun === 0 ? 0 : Math.max(0, 100 * (1 - fared.succeeded / begun)),
        server_mib: grownBytes / 2 ** 20,
      });
      told.push(describe(fared, capacity));
    }
    return told.join("; ");
  });
}

function underBurst(figures: Figures, active: readonly Control[], sizes: OverloadSizes): Promise<string> {
  return withBoth(active, {}, async (serving, calling) => {
    await calling.ask("closedLoop", places, jobs.waiting, sizes.loadMs / 3);
    await serving.ask("served");
    const startedMs = performance.now();
    const fared = await calling.ask("burst", sizes.burstCalls, { ...jobs.burst, ms: sizes.burstMs });
    const seconds = (performance.now() - startedMs) / 1000;
    const { grownBytes } = await serving.ask("served");
    const server_mib = grownBytes / 2 ** 20;
    figures.add("burst", active, "once", "at once", fared, { server_mib, seconds });
    return `${seconds.toFixed(1)} s, ${server_mib.toFixed(0)} MiB at the server, ${fared.succeeded} succeeded`;
  });
}

function describe({ perSecond, p50, p99, rejected, late }: Fared, capacity: number): string {
  const share = (value: number) => `${(100 * value).toFixed(0)} %`;
  return `${share(perSecond / capacity)} of ${capacity}/s, p50 ${p50.toFixed(0)}, p99 ${p99.toFixed(0)} ms, ${share(rejected)} rejected, ${share(late)} late`;
}

const units = {
  goodput: "%",
  p50: "ms",
  p99: "ms",
  rejected: "%",
  late: "%",
  begun_in_vain: "%",
  server_mib: "MiB",
  seconds: "s",
} as const;

/** One figure for each kind of number, scenario, load and variant, a value a round. */
class Figures {
  readonly #byName = new Map<string, Figure & { readonly rounds: number[] }>();

  get all(): Figure[] {
    return [...this.#byName.values()];
  }

  add(
    scenario: Scenario,
    active: readonly Control[],
    load: string,
    loadTitle: string,
    { p50, p99, rejected, late }: Fared,
    more: Partial<Record<keyof typeof units, number>>,
  ): void {
    const variant = nameOf(active);
    for (const [what, value] of Object.entries({
      p50,
      p99,
      rejected: 100 * rejected,
      late: 100 * late,
      ...more,
    })) {
      const name = `overload.${scenario}.${load}.${variant}.${what}`;
      let figure = this.#byName.get(name);
      figure ??= {
        name,
        subject: `at work: ${variant}`,
        chart: `${scenario}, ${loadTitle}: ${what.replaceAll("_", " ")}`,
        unit: units[what as keyof typeof units],
        better: what === "goodput" ? "more" : "less",
        load: loadAverage(),
        rounds: [],
      };
      // Where nothing succeeded, nothing took any time.
      if (!Number.isFinite(value)) continue;
      this.#byName.set(name, figure);
      figure.rounds.push(value);
    }
  }
}
