import { type AddressInfo, createServer } from "node:net";
import { clientStream, Engine, implement, type Peer, type RpcError, service, unary } from "cinnabar";
import { describe, expect, it, vi } from "vitest";
import { z } from "zod";
import { expectAtRest, filesLeft } from "../matrix/at-rest.ts";
import { openEngine, pair } from "../matrix/pair.ts";
import { type Provider, providers } from "../matrix/providers.ts";
import { deferred, failure, fired, until } from "../matrix/wait.ts";

const Life = service("life.v1", {
  ping: unary({ output: z.string() }),
  hold: unary({ output: z.unknown() }),
  close: unary({ output: z.string() }),
});

type Handlers = Parameters<typeof implement<typeof Life>>[1];
const living = (handlers: Partial<Handlers> = {}) =>
  implement(Life, { ping: () => "pong", hold: () => new Promise(() => {}), close: () => "", ...handlers });

/** The URL at which `engine` can be opened once more: a port that the system picked stays the same. */
const again = (engine: Engine): string => engine.urls[0] as string;

async function* oneAndNoMore(): AsyncGenerator<number> {
  yield 1;
  await new Promise(() => {});
}

describe.each(providers)("an engine over $name", (provider) => {
  it("tells where it listens, with the port it got", async () => {
    const engine = await openEngine({ listen: provider.freshUrl() });
    expect(engine.urls).toHaveLength(1);
    expect(engine.urls[0]?.startsWith(`${provider.scheme}://`)).toBe(true);
    expect(engine.urls[0]).not.toMatch(/:0$/);
    expect(engine.stats().ports[0]?.url).toBe(engine.urls[0]);
    expect(engine.incarnation).toBeGreaterThanOrEqual(0n);
  });

  it("closes twice, and at once again, and holds nothing then", async () => {
    const engine = await Engine.open({ listen: provider.freshUrl(), serve: [living()] });
    await Promise.all([engine.close(), engine.close()]);
    await engine.close();
    expect(engine.urls).toEqual([]);
    expect(engine.stats()).toMatchObject({ sessions: 0, ports: [], deadlines: 0 });
    expect(await failure(engine.connect(provider.deadUrl()))).toMatchObject({
      code: "unavailable",
      origin: "local",
    });
  });

  it("closes with await using", async () => {
    let url = "";
    {
      await using engine = await Engine.open({ listen: provider.freshUrl() });
      url = again(engine);
    }
    await using second = await Engine.open({ listen: url });
    expect(second.urls).toEqual([url]);
  });

  it("takes times with fractions of a millisecond", async () => {
    const times = { heartbeatMs: 1_234.56, keepaliveMs: 700.1, maxStallMs: 900.7, connectTimeoutMs: 4_000.3 };
    const server = await openEngine({ listen: provider.freshUrl(), serve: [living()], ...times });
    const client = await openEngine(times);
    const peer = await client.connect(again(server));
    expect(await peer.client(Life).ping()).toBe("pong");
  });

  it("opens and closes many times at one address", async () => {
    let url = provider.freshUrl();
    for (let i = 0; i < 8; i++) {
      await using server = await Engine.open({ listen: url, serve: [living()] });
      url = again(server);
      await using client = await Engine.open();
      const peer = await client.connect(url, { timeoutMs: provider.connectTimeoutMs });
      expect(await peer.client(Life).ping()).toBe("pong");
    }
  });

  it("gives up when an address is in use, and harms nobody by it", async () => {
    const { api, url } = await pair(provider, [living()]);
    expect(await failure(Engine.open({ listen: url }))).toMatchObject({ code: "already_exists" });
    expect(await api(Life).ping()).toBe("pong");
  });

  it("holds none of several addresses when one cannot be had", async () => {
    const taken = await openEngine({ listen: provider.freshUrl() });
    const first = await openEngine({ listen: provider.freshUrl() });
    const free = again(first);
    await first.close();
    const before = filesLeft().length;
    expect(await failure(Engine.open({ listen: [free, again(taken)] }))).toMatchObject({
      code: "already_exists",
    });
    await expect(Engine.open({ listen: [free, "carrier-pigeon://roof"] })).rejects.toThrow(TypeError);
    expect(filesLeft()).toHaveLength(before);
    const second = await openEngine({ listen: free });
    expect(second.urls).toEqual([free]);
  });

  it("listens at several addresses at once", async () => {
    const others = providers.filter(({ scheme }) => scheme !== provider.scheme).slice(0, 2);
    const listen = [provider, ...others].map((each) => each.freshUrl());
    const server = await openEngine({ listen, serve: [living()] });
    expect(server.urls).toHaveLength(3);
    const client = await openEngine();
    for (const url of server.urls) {
      const peer = await client.connect(url);
      expect(await peer.client(Life).ping()).toBe("pong");
      expect(peer.incarnation).toBe(server.incarnation);
    }
  });

  it("closes from inside a handler, synchronous or not; the call ends with unavailable", async () => {
    for (const late of [false, true]) {
      let server: Engine | undefined;
      let closed: Promise<void> | undefined;
      const two = await pair(
        provider,
        [
          living({
            async close() {
              if (late) await new Promise(setImmediate);
              closed = server?.close();
              await closed;
              return "closed";
            },
          }),
        ],
        { endsHard: true },
      );
      server = two.server;
      const others = Array.from({ length: 50 }, () => failure(two.api(Life).hold()));
      const error = await failure(two.api(Life).close());
      expect(error).toMatchObject({ code: "unavailable" });
      for (const other of await Promise.all(others)) expect(other).toMatchObject({ code: "unavailable" });
      await closed;
      const { sends, freeSlots } =
        (two.client.stats().ports[0] as { sends: number; freeSlots: number }) ?? {};
      expect([sends, freeSlots]).toEqual([0, 64]);
    }
  });

  it("ends the open calls of both sides with unavailable when it closes, and fires the signals of its handlers", async () => {
    let signal: AbortSignal | undefined;
    const serve = [
      living({
        hold: (_, call) => {
          signal = call.signal;
          return new Promise(() => {});
        },
      }),
    ];
    // Whichever side closes, and whichever had called.
    for (const closes of ["server", "client"] as const) {
      signal = undefined;
      const a = await openEngine({ listen: provider.freshUrl(), serve });
      const b = await openEngine();
      const peer = await b.connect(again(a));
      const held = failure(peer.client(Life).hold());
      await until(() => signal !== undefined, "the handler runs");
      await (closes === "server" ? a : b).close();
      const error = await held;
      expect(error).toMatchObject({ code: "unavailable", retryable: true, method: "life.v1/hold" });
      expect(error.origin).toBe(closes === "server" ? "remote" : "local");
      expect(await fired(signal as unknown as AbortSignal)).toMatchObject({ code: "unavailable" });
      expect(peer.state).toBe(closes === "server" ? "lost" : "closed");
    }
  });

  it("is closed already when its handlers hear of that, and they may close it again", async () => {
    let heard: string | undefined;
    const hold = (_: unknown, { signal }: { readonly signal: AbortSignal }) =>
      new Promise((resolve) => {
        signal.addEventListener("abort", () => {
          heard = server.state;
          resolve(server.close());
        });
      });
    const { api, server } = await pair(provider, [living({ hold })]);
    const held = failure(api(Life).hold());
    await until(() => server.stats().calls.in === 1, "the handler runs");
    await server.close();
    expect(heard).toBe("closed");
    expect(await held).toMatchObject({ code: "unavailable" });
  });

  it("tells the handler of a stream that its caller is gone, whether the peer or the engine is closed", async () => {
    const Feed = service("feed.v1", { take: clientStream({ items: z.number() }) });
    for (const closes of ["peer", "engine"] as const) {
      let signal: AbortSignal | undefined;
      const feed = implement(Feed, {
        async take(items, call) {
          signal = call.signal;
          for await (const _ of items);
        },
      });
      const { api, peer, client } = await pair(provider, [feed]);
      const ended = failure(api(Feed).take(oneAndNoMore()));
      await until(() => signal !== undefined, "the handler runs");
      await (closes === "peer" ? peer : client).close();
      expect(await fired(signal as unknown as AbortSignal)).toMatchObject({ code: "unavailable" });
      expect(await ended).toMatchObject({ code: "unavailable", origin: "local" });
    }
  });

  it("closes while a connect is under way", async () => {
    const server = await openEngine({ listen: provider.freshUrl(), serve: [living()] });
    for (let i = 0; i < 5; i++) {
      const client = await Engine.open();
      const connecting = client.connect(again(server)).then(
        () => "connected",
        (error: unknown) => (error as RpcError).code,
      );
      // From before the port is open to after the welcome.
      for (let turn = 0; turn < i; turn++) await new Promise(setImmediate);
      await client.close();
      expect(["connected", "unavailable"]).toContain(await connecting);
      expect(client.stats().ports).toEqual([]);
    }
    const client = await openEngine();
    expect(await (await client.connect(again(server))).client(Life).ping()).toBe("pong");
  });

  it("says unavailable when nobody is there, at once where that is known", async () => {
    // mem and shm know by the name, long before the timeout. What is on top of it is for a machine under load.
    const connectTimeoutMs = provider.hasConnections ? 400 : 60_000;
    const client = await openEngine({ connectTimeoutMs });
    const started = performance.now();
    const error = await failure(client.connect(provider.deadUrl()));
    const tookMs = performance.now() - started;
    expect(error).toMatchObject({ code: "unavailable", retryable: true });
    expect(tookMs).toBeLessThan(provider.hasConnections ? connectTimeoutMs + 30_000 : connectTimeoutMs);
    expect(client.stats().sessions).toBe(0);
    await expectAtRest(client);
  });

  it("shares one session of each peer object among calls, and ends with the peer's close", async () => {
    const { api, peer, server, client } = await pair(provider, [living()]);
    expect(peer.state).toBe("connected");
    expect(peer.incarnation).toBe(server.incarnation);
    expect(peer.agent).toMatch(/^cinnabar\//);
    expect(await api(Life).ping()).toBe("pong");
    const held = failure(api(Life).hold());
    await until(() => server.stats().calls.in === 1, "the handler runs");
    expect(peer.stats()).toMatchObject({ state: "connected", calls: { out: 1, in: 0 } });
    peer.close();
    peer.close();
    expect(await held).toMatchObject({ code: "unavailable", origin: "local" });
    expect(peer.state).toBe("closed");
    expect(peer.incarnation).toBeUndefined();
    expect(await failure(api(Life).ping())).toMatchObject({ code: "unavailable", origin: "local" });
    await until(() => server.stats().sessions === 0 && client.stats().sessions === 0, "both sides let go");
    // The engine goes on, and so may another peer at the same address.
    const other = await client.connect(peer.url);
    expect(await other.client(Life).ping()).toBe("pong");
    await other[Symbol.asyncDispose]();
    expect(other.state).toBe("closed");
  });

  it("connects twice to one address: the sessions do not know of each other", async () => {
    const { api, peer, client } = await pair(provider, [living()]);
    const second = await client.connect(peer.url);
    peer.close();
    expect(await failure(api(Life).ping())).toMatchObject({ code: "unavailable" });
    expect(await second.client(Life).ping()).toBe("pong");
  });

  it("reconnects by the same peer after the server was closed and opened again", async () => {
    const client = await openEngine({ connectTimeoutMs: 20_000 });
    let server = await openEngine({ listen: provider.freshUrl(), serve: [living()] });
    const url = again(server);
    const peer = await client.connect(url);
    const api = peer.client(Life);
    const lives = new Set<bigint | undefined>();
    for (let life = 0; life < 4; life++) {
      expect(await api.ping()).toBe("pong");
      expect(peer.incarnation).toBe(server.incarnation);
      lives.add(peer.incarnation);
      const held = failure(api.hold());
      await until(() => server.stats().calls.in === 1, "the handler runs");
      await server.close();
      expect(await held).toMatchObject({ code: "unavailable" });
      await until(() => peer.state === "lost", "the loss is known");
      server = await openEngine({ listen: url, serve: [living({ ping: () => "pong" })] });
    }
    // Many at once share the one reconnect.
    const answers = await Promise.all(Array.from({ length: 20 }, () => api.ping()));
    expect(new Set(answers)).toEqual(new Set(["pong"]));
    expect(server.stats().sessions).toBe(1);
    expect(lives.size).toBe(4);
  });

  it("fails calls to a peer that is gone, and works again once it is back", async () => {
    // Each call takes so long to fail. Where devices are in software, to connect takes a good part of a second. On
    // a loaded machine the first connect may need more than one attempt.
    const client = await openEngine({ connectTimeoutMs: provider.scheme === "verbs" ? 3_000 : 400 });
    const first = await openEngine({ listen: provider.freshUrl(), serve: [living()] });
    const url = again(first);
    const peer = await vi.waitFor(() => client.connect(url), { timeout: 20_000, interval: 1 });
    await first.close();
    await until(() => peer.state === "lost", "the loss is known");
    for (let i = 0; i < 3; i++) {
      expect(await failure(peer.client(Life).ping())).toMatchObject({ code: "unavailable", retryable: true });
    }
    await openEngine({ listen: url, serve: [living()] });
    await until(() => peer.state === "lost", "no attempt is under way");
    // tcp may still be backing off from the refusals.
    const answer = async () => {
      const result = await peer.client(Life).ping.result();
      return result.ok ? result.value : result.error.code;
    };
    await expect.poll(answer, { timeout: 20_000, interval: 1, message: "the peer is back" }).toBe("pong");
  });

  it("refuses sessions beyond its limit, and takes one again when there is room", async () => {
    const server = await openEngine({
      listen: provider.freshUrl(),
      serve: [living()],
      limits: { maxSessions: 2 },
    });
    const client = await openEngine();
    const peers: Peer[] = [await client.connect(again(server)), await client.connect(again(server))];
    const error = await failure(client.connect(again(server)));
    expect(error).toMatchObject({ code: "resource_exhausted", origin: "remote" });
    expect(error.message).toContain("maxSessions");
    peers[0]?.close();
    await until(() => server.stats().sessions === 1, "there is room");
    const third = await client.connect(again(server));
    expect(await third.client(Life).ping()).toBe("pong");
    expect(await peers[1]?.client(Life).ping()).toBe("pong");
  });

  it("bounds the calls in flight to what the peer grants, and serves on", async () => {
    const gate = deferred();
    const { api } = await pair(provider, [living({ hold: () => gate.promise })], {
      server: { limits: { maxRequests: 10 } },
    });
    const calls = Array.from({ length: 15 }, () => api(Life).hold.result({ whenFull: "fail" }));
    const refused = await Promise.all(calls.slice(10));
    for (const result of refused) {
      expect(result).toMatchObject({ ok: false, error: { code: "resource_exhausted", origin: "local" } });
    }
    gate.resolve();
    for (const result of await Promise.all(calls.slice(0, 10))) expect(result.ok).toBe(true);
    expect(await api(Life).ping()).toBe("pong");
  });
});

/** Takes connections and says nothing: what an overloaded or foreign server looks like. */
async function mute(port: number): Promise<{ readonly port: number; close(): Promise<void> }> {
  const sockets = new Set<{ destroy(): void }>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on("error", () => {});
  });
  await new Promise<void>((resolve) => server.listen(port, "127.0.0.1", resolve));
  return {
    port: (server.address() as AddressInfo).port,
    close() {
      for (const socket of sockets) socket.destroy();
      return new Promise((resolve) => server.close(() => resolve()));
    },
  };
}

describe("a tcp address where somebody else listens", () => {
  const tcp = providers.find(({ scheme }) => scheme === "tcp") as Provider;

  it("is given up after connectTimeoutMs, or connect's own timeoutMs", async () => {
    const other = await mute(0);
    const client = await openEngine({ connectTimeoutMs: 150 });
    const url = `tcp://127.0.0.1:${other.port}`;
    const error = await failure(client.connect(url));
    expect(error).toMatchObject({ code: "unavailable" });
    expect(await failure(client.connect(url, { timeoutMs: 50 }))).toMatchObject({ code: "unavailable" });
    await client.close();
    await other.close();
  });

  it("holds calls of a peer no longer than their deadline, their signal, or the peer's close", async () => {
    const first = await openEngine({ listen: tcp.freshUrl(), serve: [living()] });
    const url = again(first);
    const client = await openEngine({ connectTimeoutMs: 60_000 }, true);
    const peer = await client.connect(url);
    await first.close();
    await until(() => peer.state === "lost", "the loss is known");
    const other = await mute(Number(new URL(url).port));
    const api = peer.client(Life);
    const late = await failure(api.ping({ timeoutMs: 50 }));
    expect(late).toMatchObject({ code: "deadline_exceeded" });
    expect(late.message).toContain("before it could be sent");
    expect(peer.state).toBe("connecting");
    const controller = new AbortController();
    const aborted = failure(api.ping({ signal: controller.signal, timeoutMs: 60_000 }));
    controller.abort();
    expect(await aborted).toMatchObject({ code: "cancelled" });
    const waiting = failure(api.ping({ timeoutMs: 60_000 }));
    peer.close();
    expect(await waiting).toMatchObject({ code: "unavailable" });
    await client.close();
    await other.close();
  });
});
