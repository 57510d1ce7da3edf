// A group of five processes, one of which is killed and started again: what everybody sees, and when.
// Run it with `npm run example -- group`.
import { type ChildProcess, fork } from "node:child_process";
import { fileURLToPath } from "node:url";
import { type Assignment, hostTimeMs, type News } from "./contract.ts";

const program = fileURLToPath(new URL("./member.js", import.meta.url));
const ranks = [0, 1, 2, 3, 4];
const victim = 2;
const urls = ranks.map((rank) => `shm://locks-${process.pid}-${rank}`);
const members: ChildProcess[] = [];

/** The messages of the members since the last event, by rank. */
let told: { readonly from: number; readonly news: News }[] = [];
let onNews = () => {};

function start(rank: number): void {
  const member = fork(program);
  members[rank] = member;
  member.on("message", (news: News) => {
    told.push({ from: rank, news });
    onNews();
  });
  member.send({ rank, urls } satisfies Assignment);
}

/** Resolves when these ranks have sent such news. */
function until(from: readonly number[], is: (news: News) => boolean): Promise<void> {
  return new Promise((resolve) => {
    onNews = () => {
      if (from.every((rank) => told.some((each) => each.from === rank && is(each.news)))) resolve();
    };
    onNews();
  });
}

const hasMembers = (count: number) => (news: News) => news.type === "view" && news.ranks.length === count;

/** The members' messages since this time. */
function print(title: string, sinceMs: number): void {
  console.log(title);
  for (const { from, news } of told.sort((one, other) => one.news.atMs - other.news.atMs)) {
    const what =
      news.type === "view"
        ? `view ${news.version} has the ranks ${news.ranks.join(" ")}`
        : `the call to rank ${news.to} ends with ${news.code}`;
    console.log(`${(news.atMs - sinceMs).toFixed(0).padStart(6)} ms  rank ${from}: ${what}`);
  }
  told = [];
}

try {
  const others = ranks.filter((rank) => rank !== victim);

  let sinceMs = hostTimeMs();
  for (const rank of ranks) start(rank);
  await until(ranks, hasMembers(5));
  print("five processes start", sinceMs);

  sinceMs = hostTimeMs();
  members[victim]?.kill("SIGKILL");
  await until(others, hasMembers(4));
  await until(others, (news) => news.type === "call" && news.to === victim);
  print(`rank ${victim} is killed`, sinceMs);

  sinceMs = hostTimeMs();
  start(victim);
  await until(ranks, hasMembers(5));
  print(`rank ${victim} starts again`, sinceMs);
} finally {
  for (const member of members) member.kill("SIGKILL");
}
