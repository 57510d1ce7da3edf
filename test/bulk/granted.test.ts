import { bulk, Engine, implement, RpcError, service, unary } from "cinnabar";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { exact } from "../matrix/exact-limits.ts";
import { pair } from "../matrix/pair.ts";
import { transports } from "../matrix/providers.ts";
import { deferred, failure } from "../matrix/wait.ts";

const Reads = service("reads.v1", {
  first: unary({ input: z.object({ from: bulk("read") }), output: z.number(), idempotent: true }),
});

describe.each(transports)("a region that is watched over $name", (provider) => {
  it("says which peer each call goes to, and how the call has ended", async () => {
    const callers: string[] = [];
    let fails = false;
    const { api, client, url } = await pair(provider, [
      implement(Reads, {
        async first({ from }, call) {
          callers.push(call.peer);
          if (fails) throw new RpcError({ code: "aborted", message: "not today" });
          return (await call.pull(from, Uint8Array))[0] as number;
        },
      }),
    ]);
    const told: unknown[] = [];
    using from = client.expose(Uint8Array.of(7), {
      access: "read",
      onGranted(to) {
        expect(from.grants).toBe(1);
        told.push(to);
        return (error) => told.push(error?.code);
      },
    });
    expect(await api(Reads).first({ from })).toBe(7);
    fails = true;
    await failure(api(Reads).first({ from }));
    // A slice is another region.
    await failure(api(Reads).first({ from: from.slice(0, 1) }));
    expect(told).toEqual([url, undefined, url, "aborted"]);
    expect(callers).toHaveLength(3);
  });

  it("can refuse a call, which does not leave", async () => {
    let served = 0;
    const { api, client } = await pair(provider, [implement(Reads, { first: () => ++served })]);
    using from = client.expose(Uint8Array.of(7), {
      access: "read",
      onGranted() {
        throw new RpcError({ code: "failed_precondition", message: "it was lent before" });
      },
    });
    expect(await failure(api(Reads).first({ from }))).toMatchObject({
      code: "failed_precondition",
      message: expect.stringContaining("it was lent before"),
    });
    expect([served, from.grants]).toEqual([0, 0]);
  });
});

it("a call whose region is watched is not tried again once its request has left", async () => {
  let served = 0;
  const url = "mem://granted";
  const server = await Engine.open({
    listen: url,
    serve: [
      implement(Reads, {
        first() {
          served++;
          throw new RpcError({ code: "unavailable", message: "gone for a moment" });
        },
      }),
    ],
  });
  const client = await Engine.open();
  onTestFinished(() => Promise.all([server.close(), client.close()]).then(() => undefined));
  const reads = (await client.connect(url)).client(Reads, { retry: { attempts: 3, baseDelayMs: 1 } });
  using plain = client.expose(Uint8Array.of(7), { access: "read" });
  await failure(reads.first({ from: plain }));
  expect(served).toBe(3);
  using watched = client.expose(Uint8Array.of(7), { access: "read", onGranted: () => undefined });
  using ended = client.expose(Uint8Array.of(7), { access: "read", onGranted: () => () => {} });
  await failure(reads.first({ from: watched }));
  expect(served).toBe(6);
  await failure(reads.first({ from: ended }));
  expect(served).toBe(7);
});

describe("memory that a handler reserves", () => {
  const Takes = service("takes.v1", { take: unary({ input: z.number(), output: z.number() }) });

  it("counts towards maxPullBytes until the call is answered, and no longer", async () => {
    const [mem] = transports;
    if (mem === undefined) expect.fail("there is no transport");
    const begun = deferred();
    const release = deferred();
    const { api, server } = await pair(
      mem,
      [
        implement(Takes, {
          async take(bytes, call) {
            call.reserve(bytes);
            call.reserve(0);
            begun.resolve();
            if (bytes === 30_000) await release.promise;
            return server.stats().pullingBytes;
          },
        }),
      ],
      { server: { limits: exact({ maxPullBytes: 100_000 }) } },
    );
    const held = api(Takes).take(30_000);
    await begun.promise;
    expect(await failure(api(Takes).take(25_000))).toMatchObject({
      code: "resource_exhausted",
      message: expect.stringContaining("limits.maxPullBytes is 100000"),
    });
    expect(await api(Takes).take(10_000)).toBe(40_000);
    release.resolve();
    await held;
    expect(server.stats().pullingBytes).toBe(0);
    // Nothing is admitted above the limit, not even alone.
    expect(await failure(api(Takes).take(100_001))).toMatchObject({ code: "resource_exhausted" });
    for (const bytes of [-1, 0.5])
      expect(await failure(api(Takes).take(bytes))).toMatchObject({ code: "internal" });
    expect(server.stats().pullingBytes).toBe(0);
  });
});
