import { Engine } from "cinnabar";
import { coordinatorAuthority, groupFromFile, joinGroup, launchOf, seedsOf } from "cinnabar-group";

/** A member of a group that a launcher starts: it knows its rank, finds the others, and says on stdout whom it sees. */
const [file = "", port = "0"] = process.argv.slice(2);
const launch = launchOf();
if (launch === undefined) throw new Error("nobody launched this process");
const { rank, size, hosts, launcher } = launch;
// With a port the hosts of the launcher are the seeds, else the first rank leaves its address in the file.
const isFirst = rank === 0 && port !== "0";
await using engine = await Engine.open({
  listen: isFirst ? `tcp://127.0.0.1:${port}` : "tcp://127.0.0.1:0",
});
const seeds =
  port !== "0" && hosts !== undefined
    ? seedsOf(launch, Number(port))
    : (
        await groupFromFile(file, {
          timeoutMs: 60_000,
          ...(rank === 0 && { offer: { group: "launched", urls: engine.urls } }),
        })
      ).seeds;
const authority = coordinatorAuthority({ seeds, joinTimeoutMs: 60_000 });
await using group = await joinGroup("launched", {
  ...{ engine, authority, rank },
  ...(isFirst && { urls: seeds.slice(0, 1) }),
});
const view = await group.when(({ members }) => members.length === size, AbortSignal.timeout(60_000));
const ranks = view.members.map((member) => member.rank);
console.log(`\n${JSON.stringify({ launcher, rank, ranks })}\n`);
// Nobody leaves before all have seen all.
await groupFromFile(`${file}.end`, { timeoutMs: 60_000 });
