import { existsSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { setTimeout as pause } from "node:timers/promises";
import { Engine } from "cinnabar";
import { coordinatorAuthority, joinGroup, launchOf, seedsOf } from "cinnabar-group";

/** A member of a group that a launcher starts: it knows its rank, finds the others, and prints the members that it sees. */
const [file = "", port = "0"] = process.argv.slice(2);
const launch = launchOf();
if (launch === undefined) throw new Error("no launcher started this process");
const { rank, size, hosts, launcher } = launch;
// With a port the hosts of the launcher are the seeds, else the first rank writes its URLs to the file.
const isFirst = rank === 0 && port !== "0";
await using engine = await Engine.open({
  listen: isFirst ? `tcp://127.0.0.1:${port}` : "tcp://127.0.0.1:0",
});
const seeds = port !== "0" && hosts !== undefined ? seedsOf(launch, Number(port)) : await seedsInFile();
const authority = coordinatorAuthority({ seeds, joinTimeoutMs: 60_000 });
await using group = await joinGroup("launched", {
  ...{ engine, authority, rank },
  ...(isFirst && { urls: seeds.slice(0, 1) }),
});
const view = await group.when(({ members }) => members.length === size, AbortSignal.timeout(60_000));
const ranks = view.members.map((member) => member.rank);
console.log(`\n${JSON.stringify({ launcher, rank, ranks })}\n`);
// A member leaves when all have seen all.
await fileIsThere(`${file}.end`);

/** As the guide does it. */
async function seedsInFile(): Promise<readonly string[]> {
  if (rank === 0) {
    writeFileSync(`${file}.new`, JSON.stringify(engine.urls));
    renameSync(`${file}.new`, file);
  }
  await fileIsThere(file);
  return JSON.parse(readFileSync(file, "utf8"));
}

async function fileIsThere(path: string): Promise<void> {
  const untilMs = performance.now() + 60_000;
  while (!existsSync(path)) {
    if (performance.now() > untilMs) throw new Error(`there was no file ${path} for a minute`);
    await pause(50);
  }
}
