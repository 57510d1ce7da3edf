import { bulk, implement, type Pool, service, unary } from "cinnabar";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { pair } from "../matrix/pair.ts";
import { providers, transports } from "../matrix/providers.ts";
import { isSecured } from "../matrix/secured.ts";
import { deferred, failure, until } from "../matrix/wait.ts";
import { fill, firstWrong } from "./support/pattern.ts";

const Echo = service("echo.v1", {
  /** Reads the region into memory of the server's pool, turns its bytes round, and writes them back. */
  turn: unary({ input: z.object({ memory: bulk("read_write") }), output: z.number() }),
  keep: unary({ input: z.object({ memory: bulk("read_write") }) }),
});

type Keep = Parameters<typeof implement<typeof Echo>>[1]["keep"];

const echo = (poolOf: () => Pool, keep: Keep = () => {}) =>
  implement(Echo, {
    async turn({ memory: remote }, call) {
      using local = poolOf().take(remote.byteLength);
      await call.get(remote, local.bytes);
      local.bytes.reverse();
      return call.put(local.bytes, remote);
    },
    keep,
  });

describe.each(transports)("the pool over $name", (provider) => {
  // It looks at registrations, and sealed bulk makes none of a user's memory.
  it.skipIf(isSecured)(
    "gives both sides of a transfer their memory, and the same again to the next",
    async () => {
      const { server, client, api } = await pair(provider, [echo(() => server.pool)]);
      const calls = 10;
      for (let i = 0; i < calls; i++) {
        using memory = client.pool.take(300_000, { access: "read_write" });
        expect(memory.bytes.every((byte) => byte === 0)).toBe(true);
        fill(memory.bytes, i);
        expect(await api(Echo).turn({ memory: memory.region })).toBe(300_000);
        memory.bytes.reverse();
        expect(firstWrong(memory.bytes, i)).toBe(-1);
      }
      for (const engine of [server, client])
        expect(engine.stats().pool).toMatchObject({ takenBytes: 0, slabs: 1, hits: calls - 1, misses: 1 });
      expect(client.stats().regions).toBe(0);
      const [port] = server.stats().ports;
      expect(port?.registrations).toMatchObject({ held: 0, idle: 1, idleBytes: 327_680 });
      // Each call gets and puts; a pause of a second between two would cost a miss.
      expect(port?.registrations.hits).toBeGreaterThan(calls);
    },
  );

  it("gets memory back when the call that was lent it has ended, not when it is disposed", async () => {
    const [inside, goOn] = [deferred(), deferred()];
    const { client, api } = await pair(provider, [
      echo(
        () => expect.fail("not called"),
        async ({ memory: remote }, call) => {
          inside.resolve();
          await goOn.promise;
          await call.put(new Uint8Array(remote.byteLength).fill(9), remote);
        },
      ),
    ]);
    const memory = client.pool.take(5000, { access: "read_write" });
    const { bytes } = memory;
    const call = api(Echo).keep({ memory: memory.region });
    await inside.promise;
    memory.dispose();
    expect(client.stats().pool).toMatchObject({ takenBytes: 8192, freeBytes: 0 });
    using other = client.pool.take(5000);
    expect(other.bytes.buffer).not.toBe(bytes.buffer);
    goOn.resolve();
    await call;
    expect(bytes.every((byte) => byte === 9)).toBe(true);
    expect(other.bytes.every((byte) => byte === 0)).toBe(true);
    await until(() => client.stats().pool.freeBytes === 8192, "the slab is free");
  });

  it("gets memory back from a region of the user's own, when that is disposed", async () => {
    const { client, server, api } = await pair(provider, [echo(() => server.pool)]);
    const memory = client.pool.take(5000);
    const region = client.expose(memory.bytes.subarray(10, 20), { access: "read_write" });
    memory.dispose();
    expect(await api(Echo).turn({ memory: region })).toBe(10);
    expect(client.stats().pool).toMatchObject({ takenBytes: 8192, freeBytes: 0 });
    region.dispose();
    await until(() => client.stats().pool.freeBytes === 8192, "the slab is free");
  });

  it("keeps memory back while a transfer of a call that was cancelled still uses it", async () => {
    const bytes = 8 * 1024 * 1024;
    const begun = deferred();
    const { client, server, api } = await pair(provider, [
      echo(
        () => expect.fail("not called"),
        async ({ memory: remote }, call) => {
          const local = server.pool.take(bytes);
          const transfer = call.get(remote, local.bytes);
          local.dispose();
          // Nothing has been moved yet, and what it will be moved into is nobody else's.
          expect(server.stats().pool).toMatchObject({ takenBytes: bytes, freeBytes: 0 });
          begun.resolve();
          await transfer;
        },
      ),
    ]);
    using memory = client.pool.take(bytes, { access: "read_write" });
    const abort = new AbortController();
    const call = failure(api(Echo).keep({ memory: memory.region }, { signal: abort.signal }));
    await begun.promise;
    abort.abort();
    expect((await call).code).toBe("cancelled");
    await until(() => server.stats().pool.freeBytes === bytes, "the slab is free");
  });
});

describe("an engine's pool", () => {
  it("is bounded by limits.maxPoolBytes and closed with the engine", async () => {
    const provider = providers[0] as (typeof providers)[number];
    const { client } = await pair(provider, [echo(() => expect.fail("not called"))], {
      client: { limits: { maxPoolBytes: 8192 } },
    });
    using memory = client.pool.take(5000);
    expect(() => client.pool.take(1)).toThrow("limits.maxPoolBytes is 8192");
    memory.dispose();
    await client.close();
    expect(() => client.pool.take(1)).toThrow("[unavailable] the engine has been closed");
    expect(client.stats().pool).toMatchObject({ takenBytes: 0, freeBytes: 0, slabs: 0 });
  });
});
