import { Engine } from "cinnabar";
import { describe, expect, it } from "vitest";
import { openEngine, pair } from "../matrix/pair.ts";
import { providers } from "../matrix/providers.ts";
import { until } from "../matrix/wait.ts";

describe.each(providers)("keepaliveMs over $name", (provider) => {
  it("pings an idle peer again and again, on either side, and keeps the session", async () => {
    const server = await openEngine({ listen: provider.freshUrl(), keepaliveMs: 100 });
    const client = await openEngine();
    const other = await openEngine({ keepaliveMs: 100 });
    const silent = await openEngine({ listen: provider.freshUrl() });
    await client.connect(server.urls[0] as string);
    const peer = await other.connect(silent.urls[0] as string);
    const received = (engine: Engine) => engine.stats().counters.messagesReceived;
    const before = [client, silent].map(received) as [number, number];
    await until(() => received(client) >= before[0] + 5, "pings of the side that accepted");
    await until(() => received(silent) >= before[1] + 5, "pings of the side that connected");
    for (const engine of [server, client, other, silent])
      expect(engine.stats().counters).toMatchObject({
        sessionsOpened: 1,
        sessionsLost: 0,
        sessionsClosed: 0,
      });
    expect(peer.state).toBe("connected");
  });
});

describe("keepaliveMs", () => {
  it("is off by default, and checked as the other times", async () => {
    const [mem] = providers as [(typeof providers)[number]];
    const { client } = await pair(mem, []);
    expect(client.stats().deadlines).toBe(0);
    for (const keepaliveMs of [99, -1, Number.POSITIVE_INFINITY])
      await expect(Engine.open({ keepaliveMs })).rejects.toThrow(RangeError);
    await expect(Engine.open({ keepaliveMs: "1s" as never })).rejects.toThrow(
      "Engine.open: keepaliveMs must be a number of milliseconds from 100",
    );
  });
});
