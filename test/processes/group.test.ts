import { rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, describe, expect, it } from "vitest";
import { isLong } from "../matrix/long.ts";
import type { Report } from "./programs/commands.ts";
import { Child, endAllChildren } from "./support/child.ts";

const size = isLong ? 16 : 4;
/** A suspicion lasts eight periods at least, so that a loaded machine takes no process for dead that only waits. */
const detector = { periodMs: 250, suspicionFactor: 8 };
const stalledAfterMs = 1000;

const blockFile = join(tmpdir(), `cinnabar-group-${process.pid}`);

afterEach(async () => {
  rmSync(blockFile, { force: true });
  await endAllChildren();
});

/** A group on loopback addresses of its own: each run has another network of 127.0.0.0/8. */
async function startGroup(): Promise<Child[]> {
  const network = `127.${1 + (process.pid % 250)}.${Math.floor(Math.random() * 250)}`;
  const members = Array.from({ length: size }, (_, id) => ({ id, address: `${network}.${id + 1}:7946` }));
  const group = members.map(
    ({ id: self }) => new Child("group-member", { group: "test", self, members, detector, stalledAfterMs }),
  );
  await Promise.all(group.map((child) => child.report("ready")));
  return group;
}

/** Waits until all of these believe that of a member. */
async function believe(
  observers: readonly Child[],
  member: number,
  status: string,
  previous?: string,
): Promise<void> {
  const fits = (event: Report) =>
    event.member === member && event.status === status && (previous ?? event.previous) === event.previous;
  await Promise.all(observers.map((child) => child.report("status", fits)));
}

function deathsOf(member: number, observers: readonly Child[]): number {
  const events = observers.flatMap((child) => child.unread("status"));
  return events.filter((event) => event.member === member && event.status === "dead").length;
}

describe(`a group of ${size} processes`, () => {
  // One group for all, and seconds: a detector finds out by waiting.
  it("tells members that stand still, crash, are stopped and leave from each other", async () => {
    const group = await startGroup();
    const [crashed, stalled, stopped, leaving, ...rest] = group as [Child, Child, Child, Child, ...Child[]];

    writeFileSync(blockFile, "");
    await stalled.ask("block", blockFile);
    await believe([crashed, stopped, leaving, ...rest], 1, "stalled");
    // Finding out about a crash takes longer than a suspicion: a stalled member has outlived one then.
    await crashed.destroy();
    await believe([stopped, leaving, ...rest], 0, "dead");
    expect(deathsOf(1, [stopped, leaving, ...rest])).toBe(0);
    rmSync(blockFile);
    await stalled.report("unblocked");
    await believe([stopped, leaving, ...rest], 1, "alive", "stalled");
    await believe([stalled], 0, "dead");

    await stopped.stop();
    await believe([stalled, leaving, ...rest], 2, "dead");
    stopped.kill("SIGCONT");
    expect(await stopped.report("excluded")).toMatchObject({ returns: true });
    await believe([stalled, leaving, ...rest], 2, "alive", "dead");
    // It has blamed itself.
    expect(stopped.unread("slept").length).toBeGreaterThan(0);
    expect([1, 3].map((id) => deathsOf(id, [stopped]))).toEqual([0, 0]);

    await leaving.ask("leave");
    await believe([stalled, stopped, ...rest], 3, "left");
    expect(await stalled.ask("stats")).toMatchObject({
      ...{ refused: { malformed: 0, foreign: 0, unauthentic: 0 }, ignored: 0 },
    });
  });
});
