import { readdirSync } from "node:fs";
import { afterEach, expect, it, vi } from "vitest";
import { isLong } from "../../../test/matrix/long.ts";
import { Child, endAllChildren } from "../../../test/processes/support/child.ts";

/** It takes minutes on two cores that others use, too. */
vi.setConfig({ testTimeout: 900_000 });
const rounds = 50;
/** The most descriptors that a member may have more than after the first round. */
const mostMore = 2;
/** A suspicion lasts ten seconds at least: only hosts that say that a process is gone remove it. */
const detector = { periodMs: 500, suspicionFactor: 20, suspicionMaxFactor: 2 };

afterEach(endAllChildren);

/** Loopback addresses of its own for each run: another network of 127.0.0.0/8. */
const network = `127.${1 + (process.pid % 250)}.${Math.floor(Math.random() * 250)}`;
const urlOf = (rank: number) => `tcp://${network}.${rank + 1}:7420`;
const nameOf = (rank: number) => `killed-${process.pid}-${rank}`;

async function start(rank: number): Promise<Child> {
  const child = new Child("coordinated-member", {
    listen: [`shm://${nameOf(rank)}`, urlOf(rank)],
    ...{ seeds: [urlOf(0), urlOf(1)], rank, address: `${network}.${rank + 1}:7966`, detector },
  });
  await child.report("ready");
  return child;
}

interface View {
  readonly version: number;
  readonly ranks: readonly number[];
}

/** The views that have come to a member, until one has these ranks. */
async function viewsUntil(child: Child, ranks: readonly number[], afterVersion: number): Promise<View[]> {
  const views: View[] = [];
  for (;;) {
    const { version, ranks: of } = await child.report("view", (view) => view.version > afterVersion);
    views.push({ version, ranks: of });
    if (String(of) === String(ranks)) return views;
  }
}

/** Files, sockets and mappings of shared memory of a process. */
const descriptorsOf = ({ pid }: Child): number => readdirSync(`/proc/${pid}/fd`).length;

it.runIf(isLong)(
  `a member that is killed ${rounds} times and comes back is removed once each time, and nobody else is`,
  async () => {
    const [first, second] = await Promise.all([start(0), start(1)]);
    const rest = [first, second] as const;
    let victim = await start(2);
    let versions = await Promise.all(
      rest.map(async (child) => (await viewsUntil(child, [0, 1, 2], 0)).at(-1)?.version ?? 0),
    );
    let held = [0, 0];
    for (let round = 0; round < rounds; round++) {
      expect(await first.ask("who", 2)).toBe(victim.pid);
      // After the first round everything that a member holds for a place has been there.
      if (round === 1) held = rest.map(descriptorsOf);
      await victim.destroy();
      const without = await Promise.all(
        rest.map((child, at) => viewsUntil(child, [0, 1], versions[at] ?? 0)),
      );
      // The next view of both is the one without it, and it is one view.
      expect(without.map((views) => views.length)).toEqual([1, 1]);
      expect(new Set(without.map((views) => views[0]?.version)).size).toBe(1);
      victim = await start(2);
      const again = await Promise.all(
        rest.map((child, at) => viewsUntil(child, [0, 1, 2], without[at]?.[0]?.version ?? 0)),
      );
      expect(again.map((views) => views.length)).toEqual([1, 1]);
      versions = again.map((views) => views[0]?.version ?? 0);
    }
    expect(await first.ask("who", 2)).toBe(victim.pid);
    // Nobody believed another one dead, or was removed.
    for (const child of rest) {
      expect(child.unread("excluded")).toEqual([]);
      expect(
        child.unread("status").filter(({ status, member }) => status === "dead" && member !== 2),
      ).toEqual([]);
      expect(await child.ask("stats")).toMatchObject({ members: 3 });
    }
    // Connections to former processes of the place end some time after their deaths.
    await vi.waitFor(
      () => {
        const now = rest.map(descriptorsOf);
        for (const [at, count] of now.entries())
          expect(count - (held[at] ?? 0)).toBeLessThanOrEqual(mostMore);
      },
      { timeout: 60_000, interval: 200 },
    );
    for (const child of [victim, ...rest]) await child.destroy();
  },
);
