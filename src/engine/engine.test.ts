import { bytes, Engine, implement, service, unary } from "cinnabar";
import { afterEach, describe, expect, it, vi } from "vitest";
import { z } from "zod";
import { MemPort } from "../fabric/mem-port.ts";
import type { PortGauges } from "../fabric/port.ts";

const Echo = service("echo.v1", {
  echo: unary({ input: bytes(), output: bytes() }),
  close: unary(),
  any: unary({ input: z.unknown(), output: z.unknown() }),
});

afterEach(() => {
  vi.restoreAllMocks();
});

let names = 0;
const freshUrl = () => `mem://engine-test-${++names}`;

/** The bytes of every message that is sent while the test runs. */
function recordMessages(): Buffer[] {
  const messages: Buffer[] = [];
  const { send } = MemPort.prototype;
  vi.spyOn(MemPort.prototype, "send").mockImplementation(function (this: MemPort, ...args) {
    const [, slot, length] = args;
    messages.push(Buffer.from(this.slab.subarray(slot, slot + length)));
    return send.apply(this, args);
  });
  return messages;
}

/** Generous, for a machine under load. */
const soon = { timeout: 20_000, interval: 1 };

describe("an engine's messages", () => {
  it("carry no byte of a former message in the same slot", async () => {
    const serve = [implement(Echo, { echo: (body) => body, close: () => {}, any: (value) => value })];
    const url = freshUrl();
    await using server = await Engine.open({ listen: url, serve });
    await using client = await Engine.open();
    const api = (await client.connect(url)).client(Echo);
    // Every slot of both sides has held the secret to its end, and the encoder's own buffer too.
    const secret = Buffer.from("SECRET ".repeat(2330));
    await Promise.all(Array.from({ length: 200 }, () => api.echo(secret)));
    await api.echo(Buffer.concat([secret, secret, secret]));
    const messages = recordMessages();
    for (let size = 0; size < 40; size++) await api.echo(new Uint8Array(size));
    await Promise.all(Array.from({ length: 100 }, (_, size) => api.echo(new Uint8Array(size))));
    const circular: Record<string, unknown> = {};
    circular.self = circular;
    await api.any.result(circular);
    await api.any({ text: "é".repeat(50), list: [1, "2", null] });
    expect(messages.length).toBeGreaterThan(80);
    expect(messages.filter((message) => message.includes("SECRET"))).toEqual([]);
    expect(server.stats().counters.malformed).toBe(0);
  });
});

describe("an engine that a handler closes", () => {
  it.each(["in the same turn", "a microtask later"])("%s gives back each slot once", async (when) => {
    const gauges: PortGauges[] = [];
    const { close } = MemPort.prototype;
    vi.spyOn(MemPort.prototype, "close").mockImplementation(function (this: MemPort) {
      gauges.push(this.gauges());
      close.call(this);
    });
    const url = freshUrl();
    let runs = 0;
    let closed: Promise<void> | undefined;
    const server = await Engine.open({
      listen: url,
      serve: [
        implement(Echo, {
          echo: (body) => body,
          any: (value) => value,
          async close() {
            if (when !== "in the same turn") await null;
            // In the middle of a batch: completions and messages stand before and behind this one.
            if (++runs === 20) closed = server.close();
          },
        }),
      ],
    });
    await using client = await Engine.open();
    const api = (await client.connect(url)).client(Echo);
    const results = await Promise.all(
      Array.from({ length: 2000 }, (_, index) =>
        index % 50 === 0 ? api.close.result() : api.echo.result(new Uint8Array(2000)),
      ),
    );
    await closed;
    const codes = new Set(results.map((result) => (result.ok ? "ok" : result.error.code)));
    expect([...codes].sort()).toEqual(["ok", "unavailable"]);
    expect(gauges[0]).toMatchObject({ sends: 0, transfers: 0, freeSlots: 64 });
    expect(server.stats()).toMatchObject({ calls: { in: 0 }, deadlines: 0, sessions: 0 });
  });
});

describe("the peers of an engine", () => {
  it("are forgotten when they are closed, or never answered", async () => {
    const url = freshUrl();
    await using server = await Engine.open({ listen: url });
    await using client = await Engine.open();
    for (let i = 0; i < 50; i++) {
      const peer = await client.connect(url);
      peer.close();
      await client.connect(freshUrl()).catch(() => undefined);
    }
    await vi.waitFor(() => expect([client.stats().sessions, server.stats().sessions]).toEqual([0, 0]), soon);
    await vi.waitFor(() => expect(client.stats().ports[0]?.addresses).toBe(0), soon);
    expect(server.stats().ports[0]?.addresses).toBe(0);
  });

  it("may try again from inside the failure of the attempt before", async () => {
    const url = freshUrl();
    const first = await Engine.open({ listen: url });
    await using client = await Engine.open();
    const peer = await client.connect(url);
    await first.close();
    await vi.waitFor(() => expect(peer.state).toBe("lost"), soon);
    const Ping = service("ping.v1", { ping: unary() });
    const api = peer.client(Ping);
    await using second = await api.ping().then(
      () => expect.fail("nobody is there"),
      () => Engine.open({ listen: url, serve: [implement(Ping, { ping: () => {} })] }),
    );
    await expect(api.ping()).resolves.toBeUndefined();
    expect(peer.incarnation).toBe(second.incarnation);
  });
});
