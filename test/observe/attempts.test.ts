import { AsyncLocalStorage } from "node:async_hooks";
import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { bulk, implement, RpcError, service, unary } from "cinnabar";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { pair } from "../matrix/pair.ts";
import { transports } from "../matrix/providers.ts";

const Work = service("work.v1", {
  run: unary({ output: z.string(), idempotent: true }),
  fill: unary({ input: z.object({ memory: bulk("write"), fails: z.boolean() }) }),
});

const context = new AsyncLocalStorage<string>();

/** What is published on a channel until the test ends, with the async context that it is published in. */
function events(channel: string) {
  const seen: { event: Record<string, unknown>; context: string | undefined }[] = [];
  const onEvent = (event: unknown) =>
    void seen.push({ event: event as Record<string, unknown>, context: context.getStore() });
  subscribe(channel, onEvent);
  onTestFinished(() => void unsubscribe(channel, onEvent));
  return seen;
}

describe.each(transports)("events of attempts and transfers over $name", (provider) => {
  it("tell of each retry, in the context of its call", async () => {
    const seen = events("cinnabar:call.retry");
    let failures = 2;
    const { api, peer } = await pair(provider, [
      implement(Work, {
        run() {
          if (failures-- > 0) throw new RpcError({ code: "unavailable", message: "later" });
          return "done";
        },
        fill() {},
      }),
    ]);
    const client = api(Work, { retry: { attempts: 5, baseDelayMs: 1 } });
    expect(await context.run("the request of Ada", () => client.run())).toBe("done");
    expect(seen.map(({ context }) => context)).toEqual(["the request of Ada", "the request of Ada"]);
    expect(seen.map(({ event }) => event)).toMatchObject(
      [1, 2].map((attempt) => ({
        method: "work.v1/run",
        peer: peer.url,
        attempt,
        code: "unavailable",
        waitMs: expect.any(Number),
      })),
    );
  });

  it("tell of each transfer of a handler, in its context", async () => {
    const seen = events("cinnabar:transfer");
    const { client, api } = await pair(provider, [
      implement(Work, {
        run: () => "",
        fill: ({ memory, fails }, call) =>
          context.run(`call ${call.id}`, async () => {
            const bytes = new Uint8Array(100_000);
            if (!fails) return void (await call.put(bytes, memory));
            await call.put(bytes, memory, { offset: 1 }).catch(() => {});
          }),
      }),
    ]);
    using memory = client.expose(new Uint8Array(100_000), { access: "write" });
    await api(Work).fill({ memory, fails: false });
    expect(seen).toHaveLength(1);
    const { event, context: inside } = seen[0] as (typeof seen)[number];
    expect(event).toMatchObject({ op: "put", bytes: 100_000, code: "ok", tookMs: expect.any(Number) });
    expect(inside).toBe(`call ${event.callId}`);
    await api(Work).fill({ memory, fails: true });
    // One that cannot begin moves nothing, and its promise says why.
    expect(seen).toHaveLength(1);
  });
});
