// One member of the group: it waits for a lock of each other member, and reports its views and the ends of its calls.
import { Engine, implement } from "cinnabar";
import { coordinatorAuthority, joinGroup, type Member } from "cinnabar-group";
import { type Assignment, hostTimeMs, Locks, type News } from "./contract.ts";

process.once("message", async ({ rank, urls }: Assignment) => {
  const tell = (news: News) => process.send?.(news);
  const locks = implement(Locks, {
    acquire: (_, { signal }) =>
      new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason))),
  });
  const engine = await Engine.open({ listen: urls[rank] ?? "" });
  const authority = coordinatorAuthority({ seeds: urls, joinTimeoutMs: 60_000 });
  const group = await joinGroup("locks", { engine, authority, rank, serve: [locks] });

  // A member that starts again is another one: it has another incarnation.
  const known = new Set<string>();
  const waitForLockOf = async ({ rank: to, incarnation }: Member): Promise<void> => {
    const name = `${to}.${incarnation}`;
    if (to === rank || known.has(name)) return;
    known.add(name);
    const result = await group.at(to).client(Locks).acquire.result("a lock");
    if (!result.ok) tell({ type: "call", to, code: result.error.code, atMs: hostTimeMs() });
  };
  for await (const { version, members } of group.views()) {
    tell({ type: "view", version, ranks: members.map((member) => member.rank), atMs: hostTimeMs() });
    for (const member of members) void waitForLockOf(member);
  }
});
// The program has ended: so does the member, also when it has not.
process.once("disconnect", () => process.exit());
