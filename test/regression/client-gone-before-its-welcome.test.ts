import { Engine } from "cinnabar";
import { describe, it } from "vitest";
import { openEngine } from "../matrix/pair.ts";
import { transports } from "../matrix/providers.ts";
import { until } from "../matrix/wait.ts";

// Over tcp the welcome was tried for ever: each such client took one of the server's send slots for good, and kept it
// polling.
describe.each(transports)("clients that close before they are welcomed, over $name", (provider) => {
  it("cost the server nothing for long", async () => {
    const server = await openEngine({ listen: provider.freshUrl(), heartbeatMs: 100 });
    const url = server.urls[0] as string;
    for (let i = 0; i < 6; i++) {
      const client = await Engine.open();
      const connecting = client.connect(url).catch(() => undefined);
      for (let turn = 0; turn < i; turn++) await new Promise(setImmediate);
      await client.close();
      await connecting;
    }
    const isAtRest = () =>
      server.stats().ports.every(({ sends, freeSlots }) => sends === 0 && freeSlots === 64);
    await until(isAtRest, "no message is under way, and no slot is taken");
  });
});
