import { EventEmitter, once } from "node:events";
import { Engine } from "cinnabar";
import { coordinatorAuthority, type GroupDetectorOptions, joinGroup } from "cinnabar-group";
import { implementVariables } from "cinnabar-group/variables";
import { z } from "zod";
import { obey, settings, tell } from "../../../../test/processes/programs/commands.ts";

/** A member of a group with a variable, which it sets and reads when its test says so. */
interface Settings {
  readonly listen: readonly string[];
  readonly seeds: readonly string[];
  readonly rank: number;
  /** Default: none. */
  readonly detector?: GroupDetectorOptions;
}

const { listen, seeds, rank, detector } = settings<Settings>();
const engine = await Engine.open({ listen });
const authority = coordinatorAuthority({ seeds, joinTimeoutMs: 60_000, refreshMs: 500 });
const variables = implementVariables();
const group = await joinGroup("test", {
  ...{ engine, authority, rank, serve: [variables], onExcluded: () => tell("excluded") },
  ...(detector && { detector }),
});
const counter = variables.variable(group, "counter", { schema: z.int(), initial: 0 });
/** As they came. */
const watched: (readonly [version: number, value: number])[] = [];

const known: (readonly [version: number, value: number])[] = [];
const additions = new EventEmitter();
let isStopping = false;

async function watch(): Promise<void> {
  for await (const { version, value } of counter.watch()) {
    watched.push([version, value]);
    additions.emit("watched");
  }
}

obey({
  get: (minVersion: number) => counter.get({ minVersion, timeoutMs: 60_000 }),
  set: (value: number) => counter.set(value, { sync: true, timeoutMs: 60_000 }),
  change: (value: number) => counter.set(value, { timeoutMs: 60_000 }),
  /** "ok", or the code that it fails with. */
  trySet: (value: number) =>
    counter.set(value, { sync: true, timeoutMs: 1_000 }).then(
      () => "ok",
      ({ code }: { code: string }) => code,
    ),
  /** Resolves when this version or a later one has come here. */
  async seen(version: number) {
    while ((watched.at(-1)?.[0] ?? 0) < version) await once(additions, "watched");
  },
  /** Adds one again and again until `stop`; gives the additions that are known to be at all members. */
  async add() {
    let unknown = 0;
    let seen = 0;
    while (!isStopping) {
      try {
        const { version, value } = await counter.get({ minVersion: seen, timeoutMs: 60_000 });
        const options = { ifVersion: version, sync: true, timeoutMs: 60_000 };
        known.push([await counter.set(value + 1, options), value + 1]);
        additions.emit("one");
      } catch (error) {
        const { code, version } = error as { code: string; version?: number };
        if (code === "unavailable" || code === "aborted") unknown++;
        else if (version !== undefined) seen = version;
        // The version that this member has seen is lost with the owner that had it alone.
        else if (code === "failed_precondition") seen = 0;
        else throw error;
      }
    }
    return { known, unknown };
  },
  /** Resolves when so many more are known. */
  async more(by: number) {
    for (const target = known.length + by; known.length < target; ) await once(additions, "one");
  },
  stop() {
    isStopping = true;
  },
  watched: () => watched,
  ranks: () => group.view.members.map((member) => member.rank),
  members: (size: number) => group.when(({ members }) => members.length === size).then(() => undefined),
});
tell("ready", { rank: group.self?.rank });
await watch();
