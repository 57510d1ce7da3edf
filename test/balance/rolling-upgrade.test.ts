import { type Engine, implement, serverStream, service, unary } from "cinnabar";
import type { PolicyName } from "cinnabar/options";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { openEngine } from "../matrix/pair.ts";
import { type Provider, transports } from "../matrix/providers.ts";
import { failure, until } from "../matrix/wait.ts";

const Old = service("files.v1", { stat: unary({ output: z.string() }) });
/** The same service with a method more. */
const Longer = service("files.v1", {
  stat: unary({ output: z.string() }),
  find: unary({ output: z.string() }),
});
const Added = service("search.v1", {
  find: unary({ input: z.object({ key: z.string() }), output: z.string() }),
  follow: serverStream({ output: z.string() }),
});

const old = implement(Old, { stat: () => "old" });
const longer = implement(Longer, { stat: () => "new", find: () => "new" });
const added = implement(Added, {
  find: () => "new",
  async *follow() {
    yield "new";
  },
});

async function balanced(
  provider: Provider,
  serve: readonly (readonly (typeof old | typeof longer | typeof added)[])[],
  policy: PolicyName = "twoChoices",
) {
  const servers: Engine[] = [];
  for (const each of serve)
    servers.push(await openEngine({ listen: provider.freshUrl(), serve: [...each] }, true));
  const client = await openEngine({ connectTimeoutMs: 5_000 }, true);
  const peer = await client.connect(
    servers.map(({ urls }) => urls[0] as string),
    { policy, keyOf: ({ input }) => (input as { key?: string } | undefined)?.key },
  );
  await until(() => peer.backends.every(({ state }) => state === "connected"), "all are connected");
  return { servers, client, peer };
}

describe.each(transports)("a rolling upgrade over $name", (provider) => {
  it.each(["twoChoices", "leastInFlight", "roundRobin", "consistentHash"] as const)(
    "sends calls of a new service to the servers that have it, by %s",
    async (policy) => {
      const { peer } = await balanced(provider, [[old], [old, added], [old]], policy);
      const search = peer.client(Added);
      const calls = Array.from({ length: 20 }, (_, i) => search.find({ key: `${i}` }));
      expect(await Promise.all(calls)).toEqual(calls.map(() => "new"));
      for (let i = 0; i < 20; i++) expect(await search.find({ key: `${i}` })).toBe("new");
      expect(await search.follow().toArray()).toEqual(["new"]);
      // All have the former service.
      for (let i = 0; i < 20; i++) expect(await peer.client(Old).stat()).toBe("old");
      expect(peer.backends.map(({ ejected }) => ejected)).toEqual([false, false, false]);
    },
  );

  it("sends calls of a new method to the servers that have it, and those of the others to all", async () => {
    const { peer } = await balanced(provider, [[old], [longer]], "roundRobin");
    const files = peer.client(Longer);
    for (let i = 0; i < 20; i++) expect(await files.find()).toBe("new");
    const stats = [await files.stat(), await files.stat()];
    expect(stats.sort()).toEqual(["new", "old"]);
  });

  it("fails calls that no server can take, and says what they lack", async () => {
    const { peer } = await balanced(provider, [[old], [old]]);
    expect(await failure(peer.client(Added).find({ key: "a" }))).toMatchObject({
      code: "unimplemented",
      origin: "local",
      plainMessage: expect.stringMatching(
        /^one of .*: no backend serves "search\.v1\/find": .* has no service "search\.v1"$/,
      ),
    });
    expect(await failure(peer.client(Longer).find())).toMatchObject({
      code: "unimplemented",
      message: expect.stringMatching(
        /no backend serves "files\.v1\/find": .* has no method "files\.v1\/find"$/,
      ),
    });
  });

  it("finds a service that a server adds while it is connected", async () => {
    const { peer, servers } = await balanced(provider, [[old], [old]]);
    const search = peer.client(Added);
    expect(await failure(search.find({ key: "a" }))).toMatchObject({ code: "unimplemented" });
    servers[1]?.serve(added);
    let found = "";
    const look = () => {
      search.find({ key: "a" }).then(
        (answer) => (found = answer),
        () => {},
      );
      return found === "new";
    };
    await until(look, "the client hears of it");
    for (let i = 0; i < 20; i++) expect(await search.find({ key: `${i}` })).toBe("new");
  });
});

describe("a rolling upgrade whose new server is away", () => {
  const mem = transports[0] as Provider;

  it("fails calls of the new service as unavailable, or lets them wait for it", async () => {
    const { peer, servers, client } = await balanced(mem, [[old], [old, added]]);
    const [first, second] = servers.map(({ urls }) => urls[0] as string) as [string, string];
    await servers[1]?.close();
    expect(await failure(peer.client(Added).find({ key: "a" }))).toMatchObject({
      code: "unavailable",
      message: expect.stringContaining('no backend that serves "search.v1/find" can be reached'),
    });
    const patient = await client.connect([first, second], {
      reconnect: { whileLost: "wait", baseDelayMs: 1 },
    });
    const waiting = patient.client(Added).find({ key: "a" });
    expect(await patient.client(Old).stat()).toBe("old");
    await openEngine({ listen: second, serve: [old, added] }, true);
    expect(await waiting).toBe("new");
  });

  it("does not wait where all servers are there and none has the service", async () => {
    const { servers, client } = await balanced(mem, [[old], [old]]);
    const patient = await client.connect(
      servers.map(({ urls }) => urls[0] as string),
      { reconnect: { whileLost: "wait" } },
    );
    await until(() => patient.backends.every(({ state }) => state === "connected"), "all are connected");
    expect(await failure(patient.client(Added).find({ key: "a" }))).toMatchObject({ code: "unimplemented" });
  });
});
