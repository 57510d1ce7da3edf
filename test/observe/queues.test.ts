import { implement, service, unary } from "cinnabar";
import type { PortStats } from "cinnabar/inspect";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { pair } from "../matrix/pair.ts";
import { transports } from "../matrix/providers.ts";
import { deferred } from "../matrix/wait.ts";

const Queues = service("queues.v1", {
  echo: unary({ input: z.object({ n: z.int(), filler: z.string() }), output: z.object({ n: z.int() }) }),
});

const portOf = (engine: { stats(): { readonly ports: readonly PortStats[] } }) =>
  engine.stats().ports[0] as PortStats;

describe.each(transports)("the queues of a port over $name", (provider) => {
  it("fill, hold back who would fill them further, and lose nothing", async () => {
    const gate = deferred();
    const serve = implement(Queues, {
      async echo({ n }) {
        await gate.promise;
        return { n };
      },
    });
    const { server, client, api } = await pair(provider, [serve]);
    const echo = api(Queues, { timeoutMs: 60_000 });
    const depths = { send: { depth: 64 }, receive: { depth: 256 }, completion: { depth: 1024 } };
    for (const engine of [server, client]) expect(portOf(engine).queues).toMatchObject(depths);

    // Bodies of which one fills a message, so that there are more messages than slots to send from and to receive into.
    const filler = "x".repeat(12_000);
    const calls = Array.from({ length: 300 }, (_, n) => echo.echo({ n, filler }));
    gate.resolve();
    const answers = await Promise.all(calls);
    expect(answers.map(({ n }) => n)).toEqual(answers.map((_, n) => n));

    const { send, receive, completion } = portOf(client).queues;
    expect(send.highest).toBeGreaterThan(0);
    expect(send.highest).toBeLessThanOrEqual(send.depth);
    expect(receive.highest).toBeGreaterThan(0);
    expect(completion.highest).toBeGreaterThan(0);
    expect(portOf(server).queues.receive.highest).toBeGreaterThan(1);
    await expect
      .poll(() => [server, client].map((engine) => portOf(engine).queues), { timeout: 20_000 })
      .toMatchObject(
        [0, 1].map(() => ({ send: { used: 0 }, receive: { used: 0 }, completion: { used: 0 }, waiting: 0 })),
      );
  });

  it("say what the provider granted, and how much memory it knows", async () => {
    const { server, client } = await pair(provider, []);
    const { granted, registeredBytes } = portOf(server);
    using region = server.expose(new Uint8Array(100_000), { access: "read" });
    expect(region.byteLength).toBe(100_000);
    expect(portOf(client).granted).toEqual(granted === undefined ? undefined : expect.any(Object));
    if (!["tcp", "verbs"].includes(provider.scheme)) return expect(granted).toBeUndefined();
    expect(
      Math.min(...[granted?.sendDepth, granted?.receiveDepth, granted?.completionDepth].map(Number)),
    ).toBeGreaterThan(0);
    expect(granted?.maxMessageBytes).toBeGreaterThan(16_384);
    expect(granted?.localExtents).toBeGreaterThan(0);
    if (provider.scheme === "verbs") {
      expect(granted?.device).not.toBe("");
      expect(granted?.mtuBytes).toBeGreaterThan(0);
      // The slots.
      expect(registeredBytes).toBeGreaterThanOrEqual(5 * 1024 * 1024);
    }
  });
});
