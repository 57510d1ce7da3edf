import { type Identity, implement, RpcError, type SessionPeer, service, unary } from "cinnabar";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { openEngine } from "../matrix/pair.ts";
import { deferred, failure, until } from "../matrix/wait.ts";

const Worker = service("worker.v1", {
  allowed: unary({ output: z.string() }),
  forbidden: unary({ output: z.string() }),
  hang: unary({}),
});
const Farm = service("farm.v1", { try: unary({ output: z.unknown() }), ping: unary(), hang: unary({}) });

const worker = implement(Worker, {
  allowed: (_, { identity }) => (identity !== undefined && "name" in identity ? identity.name : "nobody"),
  forbidden: () => "should not run",
  hang: (_, { signal }) => new Promise((_, no) => signal.addEventListener("abort", () => no(signal.reason))),
});

const farm = implement(Farm, {
  async try(_, { caller }) {
    const api = caller.client(Worker);
    const { code, notExecuted } = await failure(api.forbidden());
    return [await api.allowed(), code, notExecuted];
  },
  ping() {},
  hang: (_, { caller }) => caller.client(Worker).hang(),
});

const psk = (identity: string) => ({ identity, key: Buffer.alloc(32, 7) });
const lookup = (identity: string) => (/^(farm|worker)$/.test(identity) ? Buffer.alloc(32, 7) : undefined);

describe.each([
  ["allow", { allow: (_: Identity | undefined, method: string) => method !== "worker.v1/forbidden" }],
  ["authorize", { authorize: async ({ method }: { method: string }) => method !== "worker.v1/forbidden" }],
])("a side that has connected, by %s", (_, decides) => {
  it("sees who the server is, and refuses it what it may not call", async () => {
    const server = await openEngine({
      listen: "tcp://127.0.0.1:0",
      serve: [farm],
      security: { psk: { ...psk("farm"), lookup } },
    });
    const asked: (Identity | undefined)[] = [];
    const security = {
      psk: { ...psk("worker"), lookup },
      allow(identity: Identity | undefined, method: string) {
        asked.push(identity);
        return "allow" in decides ? decides.allow(identity, method) : true;
      },
      ...("authorize" in decides ? { authorize: decides.authorize } : {}),
    };
    const client = await openEngine({ security });
    const peer = await client.connect(server.urls[0] as string, { serve: [worker] });
    const [name, code, notExecuted] = (await peer.client(Farm).try()) as unknown[];
    expect([code, notExecuted]).toEqual(["permission_denied", true]);
    expect(peer.identity).toMatchObject({ kind: "psk" });
    expect(asked.length).toBeGreaterThan(0);
    for (const identity of asked) expect(identity).toEqual(peer.identity);
    expect(name).toBe(peer.identity && "name" in peer.identity ? peer.identity.name : "nobody");
    expect(server.peers()[0]?.identity).toMatchObject({ kind: "psk" });
    expect(server.peers()[0]?.isConfidential).toBe(true);
  });
});

describe("a drain", () => {
  const connected = async () => {
    const server = await openEngine({ listen: "mem://drained", serve: [farm] });
    const client = await openEngine();
    const peer = await client.connect("mem://drained", { serve: [worker] });
    await peer.client(Farm).ping();
    return { server, client, peer, back: server.peers()[0] as SessionPeer };
  };

  it("of the server waits for the calls that it has made to those who connected", async () => {
    const { server, client, peer, back } = await connected();
    const stop = new AbortController();
    const open = failure(back.client(Worker).hang({ signal: stop.signal }));
    await until(() => client.calls().some(({ direction }) => direction === "in"), "the call");
    const ended = deferred<object>();
    let isDone = false;
    void server.drain({ graceMs: 60_000 }).then((report) => {
      isDone = true;
      ended.resolve(report);
    });
    await until(() => peer.state === "draining", "the word of it");
    // Those who have connected are refused, and new calls to them, too: no handler runs that needs them.
    expect(await failure(peer.client(Farm).ping())).toMatchObject({ code: "unavailable", notExecuted: true });
    await until(() => client.calls().length === 1, "the open call alone");
    expect(isDone).toBe(false);
    stop.abort();
    expect((await open).code).toBe("cancelled");
    expect(await ended.promise).toMatchObject({ aborted: [] });
  });

  it("of the server lets a handler that runs call back", async () => {
    const { server, client, peer } = await connected();
    const stop = new AbortController();
    const running = failure(peer.client(Farm).hang({ signal: stop.signal }));
    await until(() => client.calls().some(({ direction }) => direction === "in"), "the call back");
    const drained = server.drain({ graceMs: 60_000 });
    await until(() => peer.state === "draining", "the word of it");
    const other = server.peers()[0] as SessionPeer;
    expect(await other.client(Worker).allowed()).toBe("nobody");
    stop.abort();
    expect((await running).code).toBe("cancelled");
    expect((await drained).aborted).toEqual([]);
  });

  it("of a side that has connected is known to the server, whose calls fail at once", async () => {
    const { client, peer, back } = await connected();
    const stop = new AbortController();
    const running = failure(peer.client(Farm).hang({ signal: stop.signal }));
    await until(() => client.calls().some(({ direction }) => direction === "in"), "the call back");
    const drained = client.drain({ graceMs: 60_000 });
    await until(() => back.state === "draining", "the word of it");
    const error = await failure(back.client(Worker).allowed());
    expect(error).toMatchObject({ code: "unavailable", notExecuted: true });
    expect(error).toBeInstanceOf(RpcError);
    stop.abort();
    await running;
    expect((await drained).aborted).toEqual([]);
    await until(() => back.state === "ended", "the end");
  });
});
