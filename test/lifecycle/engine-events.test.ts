import { describe, expect, it } from "vitest";
import { openEngine } from "../matrix/pair.ts";
import { transports } from "../matrix/providers.ts";
import { until } from "../matrix/wait.ts";

describe.each(transports)("events of an engine over $name", (provider) => {
  it("tell of each session that opens and ends, on both sides", async () => {
    const server = await openEngine({ listen: provider.freshUrl() });
    const client = await openEngine();
    const seen: unknown[] = [];
    for (const [side, engine] of Object.entries({ server, client })) {
      engine.on("sessionOpened", ({ peer }) => {
        expect(peer.agent).toMatch(/^cinnabar\//);
        seen.push([side, "opened", peer.incarnation]);
      });
      engine.on("sessionEnded", ({ peer, reason }) =>
        seen.push([side, "ended", peer.incarnation, reason.code]),
      );
    }
    const stop = server.on("sessionOpened", () => expect.fail("a listener that was taken away"));
    stop();
    const peer = await client.connect(server.urls[0] as string);
    await until(() => seen.length === 2, "both sides");
    expect(seen).toEqual(
      expect.arrayContaining([
        ["server", "opened", client.incarnation],
        ["client", "opened", server.incarnation],
      ]),
    );
    peer.close();
    await until(() => seen.length === 4, "the end on both sides");
    expect(seen.slice(2)).toEqual(
      expect.arrayContaining([
        ["server", "ended", client.incarnation, "unavailable"],
        ["client", "ended", server.incarnation, "unavailable"],
      ]),
    );
  });

  it("tell nothing of a peer that never answered", async () => {
    const client = await openEngine();
    client.on("sessionEnded", () => expect.fail("there was no session"));
    const gone = await openEngine({ listen: provider.freshUrl() });
    const url = gone.urls[0] as string;
    await gone.close();
    await expect(client.connect(url, { timeoutMs: 500 })).rejects.toThrow();
  });
});
