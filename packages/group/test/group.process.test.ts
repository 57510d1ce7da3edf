import { rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { LiveMember } from "cinnabar-group";
import { afterAll, expect, it } from "vitest";
import { isLong } from "../../../test/matrix/long.ts";
import { Child, endAllChildren } from "../../../test/processes/support/child.ts";

const size = isLong ? 16 : 4;
/** A suspicion lasts eight periods at least, so that a loaded machine takes no process for dead that only waits. */
const detector = { periodMs: 250, suspicionFactor: 8 };
const stalledAfterMs = 1000;

/** In the long form 16 processes share the machine. */
const limits = { timeout: 300_000 };

afterAll(endAllChildren);

/** Members on loopback addresses of their own: each run has another network of 127.0.0.0/8. */
function loopbackMembers(): LiveMember[] {
  const network = `127.${1 + (process.pid % 250)}.${Math.floor(Math.random() * 250)}`;
  return Array.from({ length: size }, (_, id) => ({ id, address: `${network}.${id + 1}:7946` }));
}

async function start(members: readonly LiveMember[], self: number): Promise<Child> {
  const child = new Child("group-member", { group: "test", self, members, detector, stalledAfterMs });
  await child.report("ready");
  return child;
}

/**
 * Waits until all of these believe that of a member, whatever they have believed before: one that returns may be heard
 * of as suspect first. Nobody may have taken it for dead on the way.
 */
async function believe(observers: readonly Child[], member: number, status: string): Promise<void> {
  const believes = async (child: Child): Promise<void> => {
    for (;;) {
      const event = await child.report("status", (each) => each.member === member);
      if (event.status === status) return;
      if (event.status === "dead") throw new Error(`member ${member} was taken for dead, not for ${status}`);
    }
  };
  await Promise.all(observers.map(believes));
}

function deathsOf(member: number, observers: readonly Child[]): number {
  const events = observers.flatMap((child) => child.unread("status"));
  return events.filter((event) => event.member === member && event.status === "dead").length;
}

it(
  `a group of ${size} processes tells members that stand still, crash, are stopped and leave from each other`,
  limits,
  async ({ onTestFinished }) => {
    const blockFile = join(tmpdir(), `cinnabar-group-${process.pid}`);
    onTestFinished(() => rmSync(blockFile, { force: true }));
    const members = loopbackMembers();
    const group = await Promise.all(members.map(({ id }) => start(members, id)));
    const [crashed, stalled, stopped, leaving, ...others] = group as [Child, Child, Child, Child, ...Child[]];

    writeFileSync(blockFile, "");
    await stalled.ask("block", blockFile);
    await believe([crashed, stopped, leaving, ...others], 1, "stalled");
    // Finding out about a crash takes longer than a suspicion: a stalled member has outlived one then.
    await crashed.destroy();
    await believe([stopped, leaving, ...others], 0, "dead");
    expect(deathsOf(1, [stopped, leaving, ...others])).toBe(0);
    rmSync(blockFile);
    await stalled.report("unblocked");
    await believe([stopped, leaving, ...others], 1, "alive");
    await believe([stalled], 0, "dead");

    // Its successor hears that it is dead, and takes a later incarnation.
    const successor = await start(members, 0);
    await believe([stalled, stopped, leaving, ...others], 0, "alive");
    expect(await successor.report("excluded")).toMatchObject({ returns: true });

    await stopped.stop();
    await believe([stalled, leaving, ...others], 2, "dead");
    stopped.kill("SIGCONT");
    expect(await stopped.report("excluded")).toMatchObject({ returns: true });
    await believe([stalled, leaving, ...others], 2, "alive");
    // It has blamed itself.
    expect(stopped.unread("slept").length).toBeGreaterThan(0);
    expect([1, 3].map((id) => deathsOf(id, [stopped]))).toEqual([0, 0]);

    await leaving.ask("leave");
    await believe([stalled, stopped, ...others], 3, "left");
    expect(await stalled.ask("stats")).toMatchObject({
      ...{ refused: { malformed: 0, foreign: 0, unauthentic: 0 }, ignored: 0 },
    });
  },
);
