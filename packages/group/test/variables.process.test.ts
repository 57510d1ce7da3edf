import { afterEach, expect, it } from "vitest";
import { Child, endAllChildren } from "../../../test/processes/support/child.ts";

afterEach(endAllChildren);

/** Loopback addresses of its own for each run: another network of 127.0.0.0/8. */
const network = `127.${1 + (process.pid % 250)}.${Math.floor(Math.random() * 250)}`;
const urlOf = (rank: number) => `tcp://${network}.${rank + 1}:7400`;
const size = 4;

type Versions = readonly (readonly [version: number, value: number])[];
interface Added {
  readonly known: Versions;
  readonly unknown: number;
}

it("keeps a group's variable through the deaths of its owners: nothing that all members had is lost", async () => {
  const children: Child[] = [];
  for (let rank = 0; rank < size; rank++) {
    const listen = [`shm://${network}-${rank}`, urlOf(rank)];
    children.push(new Child("variable-member", { listen, seeds: [urlOf(0)], rank }));
    await children[rank]?.report("ready");
  }
  const [first, second, third, last] = children as [Child, Child, Child, Child];
  await Promise.all(children.map((child) => child.ask("members", size)));
  expect(await third.ask("get", 0)).toMatchObject({ value: 0 });
  const version = await last.ask<number>("set", 1);
  expect(await Promise.all(children.map((child) => child.ask("get", 0)))).toEqual(
    children.map(() => ({ version, value: 1 })),
  );

  // Two members add, before, between and after the deaths of two owners.
  const adding = [third.ask<Added>("add"), last.ask<Added>("add")];
  const more = () => Promise.all([third, last].map((child) => child.ask("more", 3)));
  await more();
  for (const owner of [first, second]) {
    await owner.destroy();
    await more();
  }
  await Promise.all([third, last].map((child) => child.ask("stop")));
  const added = await Promise.all(adding);
  const known = added.flatMap(({ known: each }) => each).sort(([one], [other]) => one - other);
  const unknown = added.reduce((sum, each) => sum + each.unknown, 0);

  // Each addition that was known to be everywhere counts once, and each other one once or not at all.
  const versions = known.map(([each]) => each);
  expect(new Set(versions).size).toBe(known.length);
  const [, highest = 0] = known.at(-1) ?? [];
  const end = await last.ask<{ version: number; value: number }>("get", versions.at(-1) ?? 0);
  expect(end.value).toBeGreaterThanOrEqual(highest);
  expect(end.value).toBeGreaterThanOrEqual(1 + known.length);
  expect(end.value).toBeLessThanOrEqual(1 + known.length + unknown);
  for (const [index, [, value]] of known.entries()) expect(value).toBeGreaterThan(known[index - 1]?.[1] ?? 1);

  // Versions increase everywhere, and no version has two values.
  const logs = await Promise.all([third, last].map((child) => child.ask<Versions>("watched")));
  for (const log of logs)
    for (const [index, [each]] of log.entries()) expect(each).toBeGreaterThan(log[index - 1]?.[0] ?? 0);
  const values = new Map(known);
  for (const [each, value] of logs.flat()) expect(values.get(each) ?? value).toBe(value);
});
