import { subscribe, unsubscribe } from "node:diagnostics_channel";
import {
  type AuthorizedCall,
  bytes,
  clientStream,
  type Engine,
  handle,
  implement,
  oneWay,
  RpcError,
  type SecurityOptions,
  serverStream,
  service,
  unary,
} from "cinnabar";
import type { SecurityRefused } from "cinnabar/inspect";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { pair } from "../matrix/pair.ts";
import { providers } from "../matrix/providers.ts";
import { deferred, failure, until } from "../matrix/wait.ts";

/** Every kind of call. The input of each is looked at when it is decoded, and its handler says that it ran. */
const Vault = service("vault.v1", {
  read: unary({ input: z.object({ key: z.string() }), output: z.string() }),
  store: unary({ input: z.object({ data: bytes() }), output: z.number() }),
  list: serverStream({ output: z.string() }),
  fill: clientStream({ items: z.string(), output: z.number() }),
  note: oneWay({ input: z.string() }),
  share: unary({ output: handle("read") }),
});

/** Without a wire there is nobody to authenticate: these two have an identity without certificates. */
const local = providers.filter(({ scheme }) => scheme === "mem" || scheme === "shm");
const [mem] = local as [(typeof providers)[number]];

async function vault(provider: (typeof providers)[number], security: SecurityOptions) {
  const ran: string[] = [];
  const failed: unknown[] = [];
  let region: ReturnType<Engine["expose"]> | undefined;
  const refused: SecurityRefused[] = [];
  const onRefused = (message: unknown) => refused.push(message as SecurityRefused);
  subscribe("cinnabar:security.refused", onRefused);
  onTestFinished(() => void unsubscribe("cinnabar:security.refused", onRefused));
  const both = await pair(
    provider,
    [
      implement(Vault, {
        read({ key }, call) {
          ran.push("read");
          return `${key} for ${call.identity?.kind}`;
        },
        store({ data }) {
          ran.push("store");
          return data.byteLength;
        },
        async *list() {
          ran.push("list");
          yield "a";
        },
        async fill(items) {
          ran.push("fill");
          let count = 0;
          for await (const _ of items) count++;
          return count;
        },
        note() {
          ran.push("note");
        },
        share() {
          region ??= both.server.expose(new Uint8Array(64), { access: "read" });
          return region.share() as never;
        },
      }),
    ],
    { server: { security, onHandlerError: (error) => failed.push(error) } },
  );
  onTestFinished(() => region?.dispose());
  return { ...both, ran, failed, refused, client: both.api(Vault), engine: both.client };
}

/** Makes a call of every kind; resolves to how each has ended. */
async function callAll(client: Awaited<ReturnType<typeof vault>>["client"]): Promise<unknown[]> {
  const listed = async () => {
    const all: string[] = [];
    for await (const item of client.list()) all.push(item);
    return all;
  };
  const calls = [
    client.read({ key: "k" }),
    client.store({ data: new Uint8Array(100) }),
    client.store({ data: new Uint8Array(300_000) }),
    listed(),
    client.fill(["x"]),
  ];
  return Promise.all(
    calls.map((call) =>
      (call as Promise<unknown>).catch((error: RpcError) => `${error.code} ${error.notExecuted}`),
    ),
  );
}

describe.each(local)("allow over $name", (provider) => {
  it("lets through what it permits, and is asked once for each method", async () => {
    const asked: string[] = [];
    const kind = provider.scheme === "mem" ? "local" : "process";
    const { client, ran } = await vault(provider, {
      allow(identity, method) {
        asked.push(method);
        return identity?.kind === kind;
      },
    });
    for (let i = 0; i < 2; i++)
      expect(await callAll(client)).toEqual([`k for ${kind}`, 100, 300_000, ["a"], 1]);
    expect(asked).toEqual(["vault.v1/read", "vault.v1/store", "vault.v1/list", "vault.v1/fill"]);
    expect(ran).toHaveLength(10);
  });

  it("refuses every kind of call before its handler, and says that nothing was executed", async () => {
    const { client, ran, server, refused, failed } = await vault(provider, { allow: () => false });
    expect(await callAll(client)).toEqual(Array(5).fill("permission_denied true"));
    await client.note("quiet");
    await until(() => failed.length > 0, "the refusal of the one-way call is told here");
    expect(ran).toEqual([]);
    expect(server.stats().security.refusals).toEqual({ not_allowed: 6 });
    expect(refused[0]).toMatchObject({ refusal: "not_allowed", method: "vault.v1/read" });
    expect(await failure(client.read({ key: "k" }))).toMatchObject({
      message: expect.stringContaining("the caller is not permitted to call vault.v1/read"),
    });
  });
});

describe.each(local)("authorize over $name", (provider) => {
  it.each([
    ["at once", (permits: boolean) => permits],
    ["later", (permits: boolean) => Promise.resolve(permits)],
  ])("decides %s for each call of every kind, by its metadata", async (_, say) => {
    const asked: AuthorizedCall[] = [];
    const { client, peer, ran, failed } = await vault(provider, {
      authorize(call) {
        asked.push(call);
        return say(call.metadata.get("token") === "good") as boolean;
      },
    });
    expect(await callAll(client)).toEqual(Array(5).fill("permission_denied true"));
    await client.note("quiet");
    await until(() => failed.length > 0, "the refusal of the one-way call is told here");
    expect(ran).toEqual([]);
    const proven = peer.client(Vault, { metadata: { token: "good" } });
    expect(await callAll(proven)).toEqual([expect.stringContaining("k for "), 100, 300_000, ["a"], 1]);
    await proven.note("loud");
    await until(() => ran.includes("note"), "the one-way call runs");
    expect(asked).toHaveLength(12);
    expect(Object.isFrozen(asked[0])).toBe(true);
    expect(asked[0]).toMatchObject({ method: "vault.v1/read", peer: expect.stringContaining("peer") });
    expect(asked[0]?.identity?.kind).toBe(provider.scheme === "mem" ? "local" : "process");
  });

  it("may take its time: what waits for it is whole afterwards, or is given up", async () => {
    const gates = new Map<string, ReturnType<typeof deferred<boolean>>>();
    const { client, ran, server } = await vault(provider, {
      authorize(call) {
        const gate = deferred<boolean>();
        gates.set(call.metadata.get("name") as string, gate);
        return gate.promise;
      },
    });
    const data = Uint8Array.from({ length: 2000 }, (_, i) => i);
    const slow = client.store({ data }, { metadata: { name: "slow" } });
    const quitter = new AbortController();
    const left = client.store({ data }, { metadata: { name: "left" }, signal: quitter.signal });
    const long = client.store({ data: new Uint8Array(500_000) }, { metadata: { name: "long" } });
    await until(() => gates.size === 3, "all are asked about");
    // Messages that reuse the places of those that wait.
    for (let i = 0; i < 20; i++) {
      const call = client.read({ key: "x".repeat(3000) }, { metadata: { name: `n${i}` } });
      await until(() => gates.has(`n${i}`), "it is asked about");
      gates.get(`n${i}`)?.resolve(true);
      await call;
    }
    quitter.abort();
    expect(await failure(left)).toMatchObject({ code: "cancelled" });
    await until(() => server.stats().calls.in === 2, "the call that was given up is gone");
    // Its body is given back then, though its verdict may never come.
    expect(server.stats().decodedBytes).toBeLessThan(2 * data.byteLength);
    for (const name of ["left", "long", "slow"]) gates.get(name)?.resolve(true);
    expect(await slow).toBe(2000);
    expect(await long).toBe(500_000);
    expect(ran.filter((name) => name === "store")).toHaveLength(2);
    // What the client serves stays decoded as long as the session: an empty table.
    await until(
      () => server.stats().decodedBytes < 200 && server.stats().pullingBytes === 0,
      "all is given back",
    );
  });

  it("permits nothing by mistake: whatever is not true refuses", async () => {
    let says: unknown;
    const { client, ran } = await vault(provider, { authorize: () => says as boolean });
    for (says of [undefined, null, 1, "true", {}, Promise.resolve(undefined), Promise.resolve("yes")])
      expect(await failure(client.read({ key: "k" }))).toMatchObject({ code: "permission_denied" });
    expect(ran).toEqual([]);
  });

  it("that throws refuses: with its code where that is an RpcError, else with internal and no text", async () => {
    let thrown: unknown;
    let later = false;
    const { client, ran, failed, server, refused } = await vault(provider, {
      authorize() {
        if (later) return Promise.reject(thrown);
        throw thrown;
      },
    });
    for (later of [false, true]) {
      thrown = new RpcError({ code: "unauthenticated", message: "the token has expired" });
      expect(await failure(client.read({ key: "k" }))).toMatchObject({
        code: "unauthenticated",
        message: "[unauthenticated] the token has expired",
        notExecuted: true,
      });
      thrown = new Error("database at 10.0.0.1 is down");
      const error = await failure(client.read({ key: "k" }));
      expect(error).toMatchObject({ code: "internal", notExecuted: true });
      expect(error.message).not.toContain("database");
      expect(failed.at(-1)).toBe(thrown);
    }
    expect(ran).toEqual([]);
    expect(server.stats().security.refusals).toEqual({ failed: 4 });
    expect(refused.map(({ error }) => error)).toContain(thrown);
  });
});

describe("a peer that has proven nothing", () => {
  it("is unauthenticated instead of not permitted", async () => {
    const [tcp] = providers.filter(({ scheme }) => scheme === "tcp") as [(typeof providers)[number]];
    const Plain = service("plain.v1", { who: unary({ output: z.string() }) });
    const { api } = await pair(tcp, [implement(Plain, { who: (_, call) => String(call.identity) })]);
    expect(await api(Plain).who()).toBe("undefined");
  });
});

describe("a handle", () => {
  it("lends nothing to a peer that may not borrow", async () => {
    const may = new Set(["vault.v1/share"]);
    const { client, engine, refused } = await vault(mem, { allow: (_, method) => may.has(method) });
    const shared = await client.share();
    expect(await failure(engine.borrow(shared))).toMatchObject({
      code: "permission_denied",
      message: expect.stringContaining("cinnabar/borrow"),
    });
    expect(refused).toMatchObject([{ refusal: "not_allowed", method: "cinnabar/borrow" }]);
  });

  it("lends to one that may", async () => {
    const { client, engine } = await vault(mem, {
      allow: (_, method) => method === "vault.v1/share" || method === "cinnabar/borrow",
    });
    await using borrowed = await engine.borrow(await client.share());
    expect(borrowed.byteLength).toBe(64);
  });
});

describe("the statistics of security", () => {
  it("count the open sessions by identity", async () => {
    const { server } = await vault(mem, { allow: () => true });
    expect(server.stats().security).toEqual({
      handshakes: 0,
      openHandshakes: 0,
      refusals: {},
      forgeries: 0,
      sessions: [{ identity: "local", sessions: 1 }],
    });
  });
});
