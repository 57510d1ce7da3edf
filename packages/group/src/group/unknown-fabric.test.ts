import { Engine, service, unary } from "cinnabar/standard";
import { afterEach, describe, expect, it } from "vitest";
import { staticAuthority } from "../authority/static-authority.ts";
import { implementCollectives } from "../collective/handlers.ts";
import { collective } from "../collective/method.ts";
import { joinGroup } from "./join-group.ts";

const Fleet = service("fleet.v1", { hello: unary(), visit: collective() });
const open: AsyncDisposable[] = [];
let engines = 0;

afterEach(async () => {
  for (const each of open.splice(0).reverse()) await each[Symbol.asyncDispose]();
});

/** A group of two. The second has this URL, or these and one at which it listens. */
async function groupWith(...urls: string[]) {
  const visited: number[] = [];
  const serve = (rank: number) =>
    implementCollectives(Fleet, { hello: () => undefined, visit: () => void visited.push(rank) });
  const fleets = [serve(0), serve(1)] as const;
  const members = await Promise.all(
    fleets.map(() => Engine.open({ listen: `mem://unknown-fabric-${++engines}` })),
  );
  open.push(...members);
  const [one, other] = members as [Engine, Engine];
  const authority = staticAuthority([
    { urls: one.urls },
    { urls: [...urls, ...(urls.length > 1 ? other.urls : [])] },
  ]);
  const group = await joinGroup("fleet", { engine: one, authority, rank: 0, serve: [fleets[0]] });
  other.serve(fleets[1]);
  open.push(group);
  return { group, visited, visit: group.all(Fleet).visit, other: other.urls[0] };
}

describe("a view that names a fabric which this version does not know", () => {
  it("loses calls to that member only, with an error that names the URL", async () => {
    const { group, visited, visit } = await groupWith("warp://10.0.0.1:7400");
    expect(() => group.at(1)).toThrow("warp://10.0.0.1:7400");
    const { ok, failed } = await visit({ onFailure: "partial" });
    expect([ok, visited]).toEqual([[0], [0]]);
    expect(failed.get(1)).toMatchObject({
      code: "unimplemented",
      message: expect.stringContaining("warp://10.0.0.1:7400"),
      executed: "no",
    });
  });

  it("loses nothing where the member has a URL that is known, too", async () => {
    const { group, other } = await groupWith("warp://10.0.0.1:7400", "loop://2");
    const link = group.at(1);
    await link.client(Fleet).hello();
    expect(link.peer.url).toBe(other);
  });
});
