import { implement, RpcError, service, unary } from "cinnabar";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { openEngine } from "../matrix/pair.ts";
import { transports } from "../matrix/providers.ts";
import { deferred, failure, until } from "../matrix/wait.ts";

const Life = service("life.v1", { ping: unary({ output: z.string() }), hold: unary() });

const living = (name: string) =>
  implement(Life, {
    ping: () => name,
    hold: (_, { signal }) =>
      new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason))),
  });

describe.each(transports)("a peer that is one process, over $name", (provider) => {
  const { heartbeatMs, connectTimeoutMs } = provider;
  const timeouts = { timeoutMs: connectTimeoutMs };
  const patient = { timeoutMs: 60_000 };
  const server = (name: string, listen = provider.freshUrl()) =>
    openEngine({ listen, heartbeatMs, serve: [living(name)] });
  const client = () => openEngine({ heartbeatMs });

  it("connects with its first call, and not before", async () => {
    const [one, caller] = [await server("one"), await client()];
    const peer = caller.lazyPeer(one.urls[0] as string, timeouts);
    expect([peer.state, caller.stats().sessions]).toEqual(["lost", 0]);
    expect(await peer.client(Life, patient).ping()).toBe("one");
    expect([peer.state, peer.incarnation]).toEqual(["connected", one.incarnation]);
  });

  it("gets its calls alone: its successor at the same URL gets none", async () => {
    const [one, caller] = [await server("one"), await client()];
    const url = one.urls[0] as string;
    const peer = caller.lazyPeer(url, { ...timeouts, incarnation: one.incarnation });
    const life = peer.client(Life, patient);
    expect(await life.ping()).toBe("one");
    await one.close();
    await until(() => peer.state === "lost", "the loss is known");
    const two = await server("two", url);
    // tcp may need more than one try while its old connection dies.
    let error = await failure(life.ping());
    while (error.code === "unavailable") error = await failure(life.ping());
    expect(error).toMatchObject({ code: "failed_precondition", notExecuted: true });
    expect(error.message).toContain(`another engine answers at ${url}`);
    expect(
      await caller
        .lazyPeer(url, { ...timeouts, incarnation: two.incarnation })
        .client(Life, patient)
        .ping(),
    ).toBe("two");
    await expect(caller.connect(url, { ...timeouts, incarnation: 5n })).rejects.toMatchObject({
      code: "failed_precondition",
    });
  });

  it("is reached by the first of its URLs that leads to it", async () => {
    const [one, other, caller] = [await server("one"), await server("other"), await client()];
    const urls = [`shm://nobody-${process.pid}`, other.urls[0] as string, one.urls[0] as string];
    const peer = caller.lazyPeer(urls, { timeoutMs: 60_000, incarnation: one.incarnation });
    expect(await peer.client(Life, patient).ping()).toBe("one");
    expect(peer.url).toBe(one.urls[0]);
    const stranger = caller.lazyPeer(urls, { timeoutMs: 60_000, incarnation: 5n });
    const error = await failure(stranger.client(Life, patient).ping());
    expect(error.message).toContain(`nobody listens at ${urls[0]}`);
    expect(error.message).toContain(`another engine answers at ${urls[1]}`);
    expect(error.message).toContain(`another engine answers at ${urls[2]}`);
  });

  it("may be closed for a reason, which ends open calls and those to come", async () => {
    const [one, caller] = [await server("one"), await client()];
    const peer = caller.lazyPeer(one.urls[0] as string, timeouts);
    const life = peer.client(Life, patient);
    await life.ping();
    const held = failure(life.hold());
    const retried = failure(life.hold({ retry: { attempts: 3 } }));
    await until(() => one.stats().calls.in === 2, "the calls have arrived");
    const cause = new Error("it left");
    peer.close(new RpcError({ code: "failed_precondition", message: "rank 3 has left", cause }));
    for (const error of [held, retried, failure(life.ping())])
      expect(await error).toMatchObject({ code: "failed_precondition", cause });
    expect((await failure(life.ping())).message).toBe("[failed_precondition] rank 3 has left");
  });
});

it("a peer of one process is closed with its reason also while it connects", async () => {
  const caller = await openEngine();
  const peer = caller.lazyPeer("tcp://192.0.2.1:7400", { reconnect: { whileLost: "wait" } });
  const call = failure(peer.client(Life).ping());
  const connecting = deferred();
  setImmediate(connecting.resolve);
  await connecting.promise;
  peer.close(new RpcError({ code: "aborted", message: "no more" }));
  expect(await call).toMatchObject({ code: "aborted" });
});

it("what is no such peer is refused at once", async () => {
  const caller = await openEngine();
  expect(() => caller.lazyPeer([])).toThrow("at least one URL");
  expect(() => caller.lazyPeer("nfs://x")).toThrow('url "nfs://x"');
  expect(() => caller.lazyPeer("mem://x", { incarnation: 7 as never })).toThrow(
    "incarnation must be a bigint",
  );
  expect(() => caller.lazyPeer("mem://x", { incarnation: -1n })).toThrow("incarnation must be a bigint");
});
