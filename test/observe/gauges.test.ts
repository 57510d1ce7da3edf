import { duplexStream, implement, oneWay, service, unary } from "cinnabar";
import { BulkStream, bulkStream, readable } from "cinnabar-bulk";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { openEngine, pair } from "../matrix/pair.ts";
import { type Provider, providers, transports } from "../matrix/providers.ts";
import { deferred, until } from "../matrix/wait.ts";

const Kinds = service("kinds.v1", {
  hold: unary(),
  stream: duplexStream({ items: z.int(), output: z.int() }),
  tell: oneWay(),
  lend: unary({ input: z.object({ data: bulkStream("read") }) }),
});

function kinds(gate: Promise<void>, onData: (data: ReadableStream<Uint8Array>) => unknown = () => undefined) {
  return implement(Kinds, {
    hold: () => gate,
    stream: async function* () {
      await gate;
      yield 1;
    },
    tell: () => gate,
    lend: async ({ data }, call) => void (await onData(readable(call, data))),
  });
}

const none = { out: 0, waiting: 0, in: 0 };

describe.each(transports)("the gauges over $name", (provider) => {
  it("count users' calls of every kind alike for the engine and the peer, on both sides", async () => {
    const gate = deferred();
    const { server, client, peer, api } = await pair(provider, [kinds(gate.promise)], {
      server: { limits: { maxRequests: 3 } },
    });
    const stream = api(Kinds).stream.open();
    const held = [
      api(Kinds).hold(),
      api(Kinds).tell(),
      api(Kinds).hold({ priority: "control" }),
      api(Kinds).hold(),
    ];
    await until(() => server.stats().calls.in === 3, "as many as there is room for");
    for (const stats of [client.stats(), peer.stats()])
      expect(stats).toMatchObject({
        calls: { out: 3, waiting: 2, in: 0 },
        controlRequests: none,
      });
    expect(server.stats()).toMatchObject({ calls: { out: 0, waiting: 0, in: 3 }, controlRequests: none });
    await stream.end();
    gate.resolve();
    await Promise.all(held);
    for await (const item of stream) expect(item).toBe(1);
  });

  it("count the library's own requests apart", async () => {
    const seen: unknown[] = [];
    const asked = deferred();
    const { server, client, api } = await pair(provider, [
      kinds(Promise.resolve(), async (data) => {
        const reader = data.getReader();
        // Asks for a chunk that is not there yet.
        const end = reader.read();
        await until(() => server.stats().controlRequests.out === 1, "the request");
        seen.push(server.stats().calls, server.stats().controlRequests);
        asked.resolve();
        await end;
        seen.push(server.stats().controlRequests);
      }),
    ]);
    const data = new BulkStream(client, "read");
    const lent = api(Kinds).lend({ data });
    await asked.promise;
    await data.writable.close();
    await lent;
    expect(seen).toEqual([{ ...none, in: 1 }, { ...none, out: 1 }, none]);
  });
});

describe("the gauges of several backends", () => {
  const mem = providers[0] as Provider;
  const never = deferred();
  const open = () => openEngine({ listen: mem.freshUrl(), serve: [kinds(never.promise)] }, true);

  it("say the same of each backend of a balanced peer as of the engine", async () => {
    const servers = [await open(), await open()];
    const client = await openEngine({}, true);
    const balanced = await client.connect(
      servers.map(({ urls }) => urls[0] as string),
      { policy: "roundRobin" },
    );
    await until(() => balanced.backends.every(({ state }) => state === "connected"), "both are connected");
    const held = Array.from({ length: 4 }, () => balanced.client(Kinds).hold.result());
    expect(balanced.backends.map(({ calls }) => calls)).toEqual([
      { ...none, out: 2 },
      { ...none, out: 2 },
    ]);
    expect(client.stats().calls).toEqual({ ...none, out: 4 });
    balanced.close();
    await Promise.all(held);
  });
});
