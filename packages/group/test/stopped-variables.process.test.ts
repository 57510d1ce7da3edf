import { afterEach, expect, it } from "vitest";
import { isLong } from "../../../test/matrix/long.ts";
import { Child, endAllChildren } from "../../../test/processes/support/child.ts";
import { freshName } from "../../../test/processes/support/fabrics.ts";

afterEach(endAllChildren);

/** Loopback addresses of its own for each run: another network of 127.0.0.0/8. */
const network = `127.${1 + (process.pid % 250)}.${Math.floor(Math.random() * 250)}`;
/** A suspicion lasts two and a half seconds at least. */
const detector = { periodMs: 250, suspicionFactor: 10, suspicionMaxFactor: 2 };
const size = 4;
/** It has no detector: so it is in the view for as long as it stands still, however slow the machine is. */
const unwatched = size - 1;
/** What the variable may be after the former owner's change has ended so: 7 where the new owner made it. */
const valuesAfter: Readonly<Record<string, readonly number[]>> = {
  ok: [7],
  aborted: [100],
  failed_precondition: [100],
  deadline_exceeded: [7, 100],
  unavailable: [7, 100],
};

async function startGroup(fabric: "shm" | "tcp"): Promise<Child[]> {
  const name = freshName();
  const urlOf = (rank: number) =>
    fabric === "shm" ? `shm://${name}-${rank}` : `tcp://${network}.${rank + 1}:7410`;
  const children = Array.from({ length: size }, (_, rank) => {
    const address = `${network}.${rank + 1}:7956`;
    const settings = { listen: [urlOf(rank)], seeds: [urlOf(0)], rank };
    const watched = rank !== unwatched && { detector: { address, options: detector } };
    return new Child("variable-member", { ...settings, ...watched });
  });
  await Promise.all(children.map((child) => child.ask("members", size)));
  return children;
}

it.each(isLong ? (["shm", "tcp"] as const) : (["shm"] as const))(
  "a variable over %s goes on beside a member that stands still, and without an owner that does",
  async (fabric) => {
    const [owner, second, third, last] = (await startGroup(fabric)) as [Child, Child, Child, Child];
    await second.ask("set", 1);

    // All others have each change while the member is in the view.
    await last.stop();
    let version = 0;
    for (let value = 2; value < 12; value++) {
      version = await second.ask<number>("change", value);
      await third.ask("seen", version);
    }
    expect(await third.ask("ranks")).toEqual([0, 1, 2, 3]);
    last.kill("SIGCONT");
    await last.ask("seen", version);
    expect(await last.ask("get", version)).toEqual({ version, value: 11 });

    // The next rank owns it when the view is without the owner that stands still.
    await owner.stop();
    const next = await third.ask<number>("set", 100);
    expect(next).toBeGreaterThan(version);
    expect(await second.ask("ranks")).toEqual([1, 2, 3]);
    // The former owner runs again, and knows of nothing yet: nobody takes its change, unless it asks its successor.
    const tried = owner.ask<string>("trySet", 7);
    owner.kill("SIGCONT");
    await owner.report("excluded");
    const values = valuesAfter[await tried];
    for (const child of [second, third, last])
      expect(values).toContain((await child.ask<{ value: number }>("get", next)).value);
    expect(await last.ask<number>("set", 101)).toBeGreaterThan(next);
  },
);
