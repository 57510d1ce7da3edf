import type { Run } from "../suite/workload.ts";
import type { CinnabarClient } from "./parties/cinnabar-client.ts";
import { Running, subjects } from "./subjects.ts";

/** Has Cinnabar's own processes at work, over each transport between two processes, for as long as `use` takes. */
export async function withOurs<Result>(
  run: Run,
  use: (ours: readonly Running<CinnabarClient>[]) => Promise<Result>,
): Promise<Result> {
  const running: Running<CinnabarClient>[] = [];
  try {
    for (const subject of subjects(run.verbsHost)) {
      const isWanted = run.contenders?.includes(subject.key) ?? true;
      if (isWanted && ["shm", "tcp", "verbs"].includes(subject.key))
        running.push(await Running.start<CinnabarClient>(subject));
    }
    return await use(running);
  } finally {
    for (const one of running) await one.end();
  }
}
