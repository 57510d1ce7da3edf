import { afterAll, describe, expect, it } from "vitest";
import { isLong } from "../../../test/matrix/long.ts";
import type { Report } from "../../../test/processes/programs/commands.ts";
import { Child, endAllChildren } from "../../../test/processes/support/child.ts";

const size = isLong ? 16 : 4;
/**
 * A suspicion lasts six seconds at least. A loaded machine takes no process for dead that only waits, or that has joined
 * and whose detector does not run yet.
 */
const detector = { periodMs: 250, suspicionFactor: 24, suspicionMaxFactor: 2 };

afterAll(endAllChildren);

interface Place {
  readonly child: Child;
  readonly rank: number;
  readonly incarnation: number;
}

interface Started extends Place {
  readonly at: number;
}

/** Starts members on loopback addresses of their own: each run has another network of 127.0.0.0/8. */
function starter(): (place: number, rank?: number) => Promise<Place> {
  const network = `127.${1 + (process.pid % 250)}.${Math.floor(Math.random() * 250)}`;
  const hostOf = (place: number) => `${network}.${place + 1}`;
  const urlOf = (place: number) => `tcp://${hostOf(place)}:7400`;
  const seeds = [urlOf(0), urlOf(1)];
  return async (place, rank) => {
    const child = new Child("coordinated-member", {
      listen: [`shm://${network}-${place}`, urlOf(place)],
      ...{ seeds, address: `${hostOf(place)}:7946`, detector },
      ...(rank !== undefined && { rank }),
    });
    const ready = await child.report("ready");
    return { child, rank: ready.rank, incarnation: ready.incarnation };
  };
}

/** Until each has a view of these ranks; gives their versions. */
async function agree(
  places: readonly Place[],
  ranks: readonly number[],
  sinceVersion = 0,
): Promise<number[]> {
  const fits = ({ ranks: of, version }: Report) => String(of) === String(ranks) && version > sinceVersion;
  const views = await Promise.all(places.map(({ child }) => child.report("view", fits)));
  return views.map(({ version }) => version);
}

describe(`a group of ${size} processes with a coordinator`, () => {
  // One group for all, since starting it takes most of the time; and some seconds, for a detector finds out by waiting.
  it("goes on without processes that are killed, stand still or leave, and knows their successors", async () => {
    const start = starter();
    const started = await Promise.all(Array.from({ length: size }, (_, place) => start(place)));
    const ranks = started.map(({ rank }) => rank).sort((a, b) => a - b);
    expect(ranks).toEqual(Array.from({ length: size }, (_, rank) => rank));
    await agree(started, ranks);
    const places = started.map((place, at) => ({ ...place, at })).sort((a, b) => a.rank - b.rank);
    const [first, second, third, last, ...more] = places as [
      Started,
      Started,
      Started,
      Started,
      ...Started[],
    ];
    const rest = [third, last, ...more];
    expect(await third.child.ask("who", 1)).toBe(second.child.pid);
    expect(await third.child.ask<string>("url", 1)).toMatch(/^shm:/);

    // A call to a process that is killed ends, and all know at once: its host says that it is gone.
    const held = third.child.ask("hold", 1);
    await second.child.destroy();
    expect(["unavailable", "failed_precondition"]).toContain(await held);
    await agree(
      [first, ...rest],
      ranks.filter((rank) => rank !== 1),
    );

    // Its successor has its place, and is another process there.
    const again = await start(second.at, 1);
    expect([again.rank, again.incarnation > second.incarnation]).toEqual([1, true]);
    await agree([first, ...rest], ranks, again.incarnation - 1);
    expect(await third.child.ask("who", 1)).toBe(again.child.pid);

    // The coordinator is killed: the next rank takes over.
    await first.child.destroy();
    const versions = await agree(rest, ranks.slice(1));
    expect(new Set(versions)).toEqual(new Set([1000]));

    // The coordinator stands still for longer than a suspicion: removed, and it learns that when it runs again.
    await again.child.stop();
    await agree(rest, ranks.slice(2));
    again.child.kill("SIGCONT");
    await again.child.report("excluded");
    await again.child.report("ended");
    expect(await third.child.ask("who", 3)).toBe(last.child.pid);

    await third.child.ask("leave");
    await agree([last, ...more], ranks.slice(3));
    expect(await last.child.ask("stats")).toMatchObject({
      members: size - 3,
      detector: { ignored: expect.any(Number) },
    });
  });
});
