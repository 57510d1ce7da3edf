import { existsSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, it } from "vitest";
import { staticAuthority } from "../authority/static-authority.ts";
import { makeView } from "../view/view.ts";
import { groupFromFile, saveGroup } from "./group-file.ts";

const folder = mkdtempSync(join(tmpdir(), "cinnabar-group-file-"));
let files = 0;
const freshPath = () => join(folder, `group-${++files}.json`);
const offerOf = (url: string) => ({ offer: { group: "store", urls: [url] } });
const viewOf = (version: number, size = 2) =>
  makeView(
    "store",
    version,
    Array.from({ length: size }, (_, rank) => ({
      ...{ rank, incarnation: version, urls: [`tcp://10.0.0.${rank}:7400`], metadata: { zone: "a" } },
      ...{ engine: undefined, host: undefined, detector: undefined },
    })),
  );

afterAll(() => rmSync(folder, { recursive: true, force: true }));

it("is written by the first of many, and all read the same", async () => {
  const path = freshPath();
  const waiting = groupFromFile(path);
  const read = await Promise.all(
    Array.from({ length: 24 }, (_, place) => groupFromFile(path, offerOf(`tcp://10.0.0.1:${7400 + place}`))),
  );
  const [first] = read;
  expect(first?.members).toHaveLength(1);
  for (const each of [...read, await waiting]) expect(each).toEqual(first);
  expect(first).toMatchObject({ group: "store", version: 0, seeds: first?.members[0]?.urls });
  expect(readdirSync(folder).filter((name) => name !== "group-1.json")).toEqual([]);
});

it("has the members of a view that was saved, and never an older one", async () => {
  const path = freshPath();
  expect(await saveGroup(path, viewOf(7))).toBe(true);
  expect(await saveGroup(path, viewOf(6, 1))).toBe(false);
  const { version, members, seeds } = await groupFromFile(path, offerOf("tcp://10.0.0.9:1"));
  expect([version, seeds]).toEqual([7, ["tcp://10.0.0.0:7400", "tcp://10.0.0.1:7400"]]);
  expect(members[1]).toEqual({ rank: 1, urls: ["tcp://10.0.0.1:7400"], metadata: { zone: "a" } });
  expect(() => staticAuthority(members)).not.toThrow();
});

it("is never read in parts while it is written", async () => {
  const path = freshPath();
  await saveGroup(path, viewOf(1, 200));
  let isDone = false;
  const saving = (async () => {
    for (let version = 2; version <= 20; version++) await saveGroup(path, viewOf(version, 200));
    isDone = true;
  })();
  let last = 0;
  while (!isDone) {
    const { version, members } = await groupFromFile(path);
    expect([members.length, version >= last]).toEqual([200, true]);
    last = version;
  }
  await saving;
});

it("is waited for until its time is over, or the signal aborts", async () => {
  const path = freshPath();
  const late = await groupFromFile(path, { timeoutMs: 1 }).catch((error: unknown) => error);
  expect(late).toMatchObject({ code: "unavailable" });
  expect((late as Error).message).toContain(`there was no file ${path} for 1 ms`);
  const end = new AbortController();
  const waiting = groupFromFile(path, { signal: end.signal });
  end.abort(new Error("enough"));
  await expect(waiting).rejects.toMatchObject({ code: "cancelled", cause: new Error("enough") });
});

it.each([
  ["{", "JSON"],
  ["[]", "cinnabarGroup must be 1, it is undefined"],
  ["null", "cinnabarGroup must be 1"],
  ['{"cinnabarGroup":1,"version":1,"members":[]}', "group must be a name"],
  ['{"cinnabarGroup":1,"group":"a","version":-1,"members":[]}', "version must be a whole number"],
  ['{"cinnabarGroup":1,"group":"a","version":1,"members":[]}', "a list that is not empty"],
  ['{"cinnabarGroup":1,"group":"a","version":1,"members":[{"urls":"x"}]}', "rank 0 has no list of URLs"],
  ['{"cinnabarGroup":1,"group":"a","version":1,"members":[{"urls":[]}]}', "rank 0 has no URL"],
  [
    '{"cinnabarGroup":1,"group":"a","version":1,"members":[{"urls":["x"],"rank":1},{"urls":["y"]}]}',
    "two members have the rank 1",
  ],
])("is not %s", async (text, why) => {
  const path = freshPath();
  writeFileSync(path, text);
  const error = await groupFromFile(path).catch((thrown: unknown) => thrown);
  expect(error).toMatchObject({ code: "invalid_argument" });
  expect((error as Error).message).toContain(`${path} is no file of a group: `);
  expect((error as Error).message).toContain(why);
});

it("refuses wrong options, and offers that are no group, before it writes", async () => {
  const path = freshPath();
  await expect(groupFromFile(path, { offers: 1 } as never)).rejects.toThrow('unknown option "offers"');
  await expect(groupFromFile(path, { timeoutMs: 0 })).rejects.toThrow(
    "timeoutMs must be a number of milliseconds above 0",
  );
  await expect(groupFromFile(path, { offer: { group: "store", urls: [] } })).rejects.toThrow("has no URL");
  expect(existsSync(path)).toBe(false);
});
