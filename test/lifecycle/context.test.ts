import { AsyncLocalStorage } from "node:async_hooks";
import { implement, service, unary } from "cinnabar";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { openEngine, pair } from "../matrix/pair.ts";
import { transports } from "../matrix/providers.ts";
import { deferred, until } from "../matrix/wait.ts";
import { waits } from "../matrix/waits.ts";

const Where = service("where.v1", {
  here: unary({ output: z.string() }),
  nested: unary({ output: z.string() }),
  hold: unary({ output: z.string() }),
});

describe.each(transports)("over $name, what a user keeps in an AsyncLocalStorage", (provider) => {
  it("is not seen by handlers of others, whoever set the engine going", async () => {
    const storage = new AsyncLocalStorage<string>();
    const where = () => storage.getStore() ?? "nowhere";
    const work = implement(Where, {
      here: where,
      // Its own call sets the engine's turns going, in which others' requests arrive.
      nested: () =>
        storage.run("a handler", async () => {
          await there.here();
          return where();
        }),
      hold: where,
    });
    const { server, api } = await pair(provider, [work]);
    const elsewhere = await openEngine({ listen: provider.freshUrl(), serve: [work] });
    const there = (await server.connect(elsewhere.urls[0] as string)).client(Where);
    for (let round = 0; round < 20; round++) {
      const [mine, handlers, others] = await Promise.all([
        storage.run("a caller", () => api(Where).here()),
        api(Where).nested(),
        api(Where).here(),
      ]);
      expect([mine, handlers, others]).toEqual(["nowhere", "a handler", "nowhere"]);
      // The next caller sets an engine at rest going.
      const turns = () => process.getActiveResourcesInfo().includes("Immediate");
      await until(() => !turns(), "the engines are at rest");
    }
    // What awaits keeps its own.
    expect(await storage.run("a caller", async () => [await api(Where).here(), where()])).toEqual([
      "nowhere",
      "a caller",
    ]);
  });

  it("is not seen by a handler that begins when another ends", async () => {
    const storage = new AsyncLocalStorage<string>();
    const gate = deferred();
    const work = implement(Where, {
      here: () => storage.getStore() ?? "nowhere",
      nested: () => "",
      hold: async () => {
        storage.enterWith("who held the place");
        await gate.promise;
        return "";
      },
    });
    const { server, api } = await pair(provider, [work], {
      server: { admission: { maxConcurrent: 1, ...waits } },
    });
    const held = api(Where).hold();
    await until(() => server.stats().admission.running === 1, "it has the place");
    const waiting = api(Where).here();
    await until(() => server.stats().admission.queued === 1, "the other waits");
    gate.resolve();
    await held;
    expect(await waiting).toBe("nowhere");
  });
});
