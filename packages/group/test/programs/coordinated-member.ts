import { Engine, implement } from "cinnabar";
import { coordinatorAuthority, type DetectorOptions, joinGroup } from "cinnabar-group";
import { obey, settings, tell } from "../../../../test/processes/programs/commands.ts";
import { Standing } from "./group-contract.ts";

/** A member of a group with a coordinator, which calls other members when its test says so. */
interface Settings {
  readonly listen: readonly string[];
  readonly seeds: readonly string[];
  readonly rank?: number;
  readonly address: string;
  readonly detector: DetectorOptions;
}

const { listen, seeds, rank, address, detector } = settings<Settings>();
const standing = implement(Standing, {
  who: () => process.pid,
  hold: (_, { signal }) =>
    new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason))),
});
const engine = await Engine.open({ listen });
const authority = coordinatorAuthority({ seeds, joinTimeoutMs: 60_000, refreshMs: 500 });
const group = await joinGroup("test", {
  ...{ engine, authority, serve: [standing], detector: { address, options: detector } },
  ...(rank !== undefined && { rank }),
  // The engine closes as it does by default, and the process goes on to report it.
  onExcluded: async (excluded) => {
    tell("excluded", { version: excluded.view.version });
    await excluded.close();
    await engine.close();
  },
});
group.on("status", ({ member, status, previous }) =>
  tell("status", { member: member.rank, status, previous }),
);

async function tellViews(): Promise<void> {
  for await (const { version, members } of group.views())
    tell("view", {
      version,
      ranks: members.map((member) => member.rank),
      engines: members.map((member) => member.engine),
    });
}

obey({
  who: (of: number) => group.at(of).client(Standing).who(),
  /** The code that the call ends with. */
  async hold(of: number) {
    const result = await group.at(of).client(Standing).hold.result({ timeoutMs: 100_000 });
    return result.ok ? "ok" : result.error.code;
  },
  url: (of: number) => group.at(of).peer.url,
  leave: () => group.leave(),
  close: async () => {
    await group.close();
    await engine.close();
  },
  stats: () => group.stats(),
});
tell("ready", { rank: group.self?.rank, incarnation: group.self?.incarnation });
await tellViews();
tell("ended");
