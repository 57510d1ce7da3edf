import { appendFileSync } from "node:fs";
import { join } from "node:path";
import { Engine, service } from "cinnabar";
import {
  type CollectiveCallOptions,
  CollectiveError,
  type CollectiveResult,
  type Collectives,
  collective,
  implementCollectives,
  implementMeetings,
  joinGroup,
  type Meetings,
  openCollectives,
  openMeetings,
  staticAuthority,
} from "cinnabar-group";
import { z } from "zod";
import { engineCommands, obey, settings, tell } from "./commands.ts";

// A member of a group that executes collectives. What it executes it writes to a file, which outlives it.
const { rank, listen, folder } = settings<{
  readonly rank: number;
  readonly listen: string;
  readonly folder: string;
}>();

const Visits = service("visits.v1", {
  visit: collective({
    input: z.object({ holds: z.boolean() }),
    output: z.array(z.number()),
    reduce: (some, others) => [...some, ...others],
  }),
});

let release = (): void => undefined;
const visits = implementCollectives(Visits, {
  async visit({ holds }, call) {
    appendFileSync(join(folder, `${rank}.log`), `${call.id}\n`);
    if (holds) {
      const held = new Promise<void>((resolve) => {
        release = resolve;
      });
      tell("held");
      await held;
    }
    return [rank];
  },
});

const meetings = implementMeetings();

// A machine that is busy with other processes takes none of them for lost.
const engine: Engine = await Engine.open({ listen, serve: [visits, meetings], heartbeatMs: 20_000 });
let collectives: Collectives;
let meeting: Meetings;

/** What a call came to, as plain data. */
const plain = ({ value, ok, failed, repaired }: CollectiveResult<unknown>) => ({
  ...{ value, ok, repaired },
  failed: [...failed].map(([each, { code, executed }]) => ({ rank: each, code, executed })),
});

obey({
  ...engineCommands(engine),
  async join(urls: string[][]) {
    const authority = staticAuthority(urls.map((each) => ({ urls: each })));
    const group = await joinGroup("visitors", { engine, authority, rank });
    collectives = openCollectives(group, { serve: [visits, meetings] });
    meeting = openMeetings(collectives, meetings);
  },
  async visit({ holds = false, ...options }: CollectiveCallOptions & { holds?: boolean }) {
    try {
      return plain(await collectives.all(Visits).visit({ holds }, options));
    } catch (error) {
      if (error instanceof CollectiveError) return plain(error.result);
      throw error;
    }
  },
  release: () => release(),
  /** When it came and when it left, on the clock that all processes of a host share. */
  async barriers(rounds: number) {
    const times: { readonly cameNs: bigint; readonly leftNs: bigint }[] = [];
    for (let round = 0; round < rounds; round++) {
      const cameNs = process.hrtime.bigint();
      await meeting.barrier("round", { timeoutMs: 60_000 });
      times.push({ cameNs, leftNs: process.hrtime.bigint() });
    }
    return times;
  },
  allReduce: (value: string) => meeting.allReduce("word", value, (one, other) => one + other),
  collectiveStats: () => collectives.stats(),
});
tell("listening", { urls: engine.urls });
