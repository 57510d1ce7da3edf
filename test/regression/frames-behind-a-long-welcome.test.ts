import { implement, service, unary } from "cinnabar";
import { describe, expect, it } from "vitest";
import { exact } from "../matrix/exact-limits.ts";
import { openEngine } from "../matrix/pair.ts";
import { transports } from "../matrix/providers.ts";

// Names of 80 KB, which no message holds: each welcome is pulled, and what came behind it was taken for a breach of the
// protocol.
const names = Array.from({ length: 900 }, (_, i) => `method${i}`.padEnd(90, "x"));
const Wide = service("wide.v1", Object.fromEntries(names.map((name) => [name, unary()])));
const wide = implement(Wide, Object.fromEntries(names.map((name) => [name, () => undefined])));

describe.each(transports)("clients of many methods over $name", (provider) => {
  it("are connected though the server tells them of their credits at once", async () => {
    // So few that each client that comes changes the others' share.
    const limits = exact({ maxRequests: 64, maxRequestsInAll: 64 });
    const server = await openEngine({ listen: provider.freshUrl(), serve: [wide], limits });
    const url = server.urls[0] as string;
    const clients = await Promise.all([1, 2, 3].map(() => openEngine()));
    const peers = await Promise.all(clients.map((client) => client.connect(url)));
    for (const peer of peers) await peer.client(Wide)[names[7] as string]?.();
    for (const client of clients) {
      const { malformed, bodiesPulled } = client.stats().counters;
      expect(malformed).toBe(0);
      // The welcome. A client whose welcome is slow to come says hello again, and may pull another.
      expect(bodiesPulled).toBeGreaterThan(0);
    }
  });
});
