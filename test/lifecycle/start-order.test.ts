import { Engine, implement, service, unary } from "cinnabar";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { openEngine } from "../matrix/pair.ts";
import { transports } from "../matrix/providers.ts";
import { securedOptions } from "../matrix/secured.ts";
import { failure } from "../matrix/wait.ts";

const Clock = service("clock.v1", { zone: unary({ output: z.string() }) });
const clock = implement(Clock, { zone: () => "UTC" });

const waits = { timeoutMs: 500, reconnect: { whileLost: "wait", maxDelayMs: 20 } } as const;

/** An address of an engine that was there, so that it is free and well formed. */
async function freeUrl(fresh: string): Promise<string> {
  const engine = await Engine.open({ ...securedOptions, listen: fresh });
  const url = engine.urls[0] as string;
  await engine.close();
  return url;
}

describe.each(transports)("a client over $name that starts before its server", (provider) => {
  it("waits with its calls, each until its own deadline", async () => {
    const url = await freeUrl(provider.freshUrl());
    const client = await openEngine();
    const peer = await client.connect(url, waits);
    expect(peer.state).toBe("lost");
    const late = await failure(peer.client(Clock, { timeoutMs: 50 }).zone());
    expect(late).toMatchObject({ code: "deadline_exceeded", notExecuted: true });
    const zone = peer.client(Clock, { timeoutMs: 20_000 }).zone();
    await openEngine({ listen: url, serve: [clock] });
    expect(await zone).toBe("UTC");
    expect(peer.state).toBe("connected");
  });

  it("waits for the first of several servers", async () => {
    const urls = [await freeUrl(provider.freshUrl()), await freeUrl(provider.freshUrl())];
    const client = await openEngine();
    const peer = await client.connect(urls, waits);
    const zone = peer.client(Clock, { timeoutMs: 20_000 }).zone();
    await openEngine({ listen: urls[1] as string, serve: [clock] });
    expect(await zone).toBe("UTC");
  });

  it("fails at once where it is not to wait", async () => {
    const url = await freeUrl(provider.freshUrl());
    const client = await openEngine();
    expect(await failure(client.connect(url, { timeoutMs: 500 }))).toMatchObject({ code: "unavailable" });
    expect(await failure(client.connect([url], { timeoutMs: 500 }))).toMatchObject({ code: "unavailable" });
  });
});

it("does not wait for what cannot pass", async () => {
  const client = await openEngine();
  await expect(client.connect("tcp://", waits)).rejects.toThrow(TypeError);
  expect(await failure(client.connect([], waits))).toMatchObject({ code: "unavailable" });
});
