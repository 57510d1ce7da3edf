import { checkFamilies, checkNames } from "./families.ts";
import { loadAverage } from "./machine.ts";
import type { Measurements, Settings } from "./results.ts";
import type { Run, Workload } from "./workload.ts";

/**
 * Runs the workloads one after the other. The results name one that fails, and the others still run.
 *
 * @param tell gets each line of progress
 * @throws Error before anything runs, when two workloads could name a figure alike.
 */
export async function runWorkloads(
  workloads: readonly Workload[],
  settings: Settings,
  tell: (line: string) => void,
  choice: Pick<Run, "verbsHost" | "contenders"> = {},
): Promise<Measurements> {
  checkFamilies(workloads);
  const startedAt = new Date().toISOString();
  const started = performance.now();
  const before = loadAverage();
  const seconds = () => (performance.now() - started) / 1000;
  const figures: Measurements["figures"][number][] = [];
  const lacks: Measurements["lacks"][number][] = [];
  const ran: Measurements["workloads"][number][] = [];
  const failures: Measurements["failures"][number][] = [];
  for (const workload of workloads) {
    const { name, title, about } = workload;
    const say = (line: string) => tell(`${seconds().toFixed(0).padStart(4)} s  ${name}: ${line}`);
    const run: Run = {
      quick: settings.quick,
      rounds: settings.rounds,
      roundMs: settings.roundMs,
      ...choice,
      tell: say,
      lack(subject, why) {
        lacks.push({ workload: name, subject, why });
        say(`${subject} cannot be measured: ${why.split("\n")[0]}`);
      },
    };
    say(title);
    const startedSeconds = seconds();
    try {
      const brought = await workload.run(run);
      checkNames(
        workload,
        brought.map((figure) => figure.name),
      );
      for (const figure of brought) figures.push({ ...figure, workload: name });
    } catch (error) {
      const told = error instanceof Error ? (error.stack ?? error.message) : String(error);
      failures.push({ workload: name, error: told });
      say(`FAILED: ${told}`);
    }
    ran.push({ name, title, about, seconds: seconds() - startedSeconds });
  }
  return {
    startedAt,
    seconds: seconds(),
    settings,
    load: { before, after: loadAverage() },
    workloads: ran,
    figures,
    lacks,
    failures,
  };
}
