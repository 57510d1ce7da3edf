import { type AddressInfo, createServer, type Socket } from "node:net";
import { type Engine, handle, implement, RegionHandle, service, unary } from "cinnabar";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { tokenOf } from "../../src/memory/region-handle.ts";
import { handleTokenBytes } from "../../src/wire/handle-descriptor.ts";
import { fill, firstWrong } from "../bulk/support/pattern.ts";
import { openEngine, pair } from "../matrix/pair.ts";
import { providers, transports } from "../matrix/providers.ts";
import { failure, until } from "../matrix/wait.ts";

const Shelf = service("shelf.v1", {
  /** Gives out what it has, in an output. */
  take: unary({ input: z.object({ leaseMs: z.number().optional() }), output: handle("read_write") }),
  /** Reads what it is handed in an input, straight from its owner. */
  read: unary({ input: z.object({ from: handle("read") }), output: z.number() }),
});

/** The owner A shares, B gets the handle by a call, C gets it from B. */
async function three(provider: (typeof providers)[number], memory: Uint8Array) {
  const a = await pair(provider, [
    implement(Shelf, {
      take: ({ leaseMs }) => region.share(leaseMs === undefined ? {} : { leaseMs }),
      read: () => 0,
    }),
  ]);
  const owner: Engine = a.server;
  const region = owner.expose(memory, { access: "read_write" });
  const c = await openEngine({
    listen: provider.freshUrl(),
    serve: [
      implement(Shelf, {
        take: () => {
          throw new Error("nothing here");
        },
        async read({ from }) {
          await using borrowed = await c.borrow(from);
          const got = new Uint8Array(borrowed.byteLength);
          await borrowed.get(got, { checksum: "crc32c" });
          return firstWrong(got, 3);
        },
      }),
    ],
  });
  const toC = (await a.client.connect(c.urls[0] as string)).client(Shelf);
  return { owner, region, b: a.client, c, fromA: a.api(Shelf), toC };
}

describe.each(transports)("a handle over $name", (provider) => {
  it("lets its holder borrow the region, and a third engine to which it was passed on", async () => {
    const memory = new Uint8Array(1_000_000);
    fill(memory, 3);
    const { b, fromA, toC, region } = await three(provider, memory);
    const taken = await fromA.take({});
    expect(taken).toMatchObject({ access: "read_write", byteLength: memory.byteLength });
    expect(taken.leaseMs).toBeGreaterThan(50_000);
    expect(Object.keys(taken)).not.toContain("token");
    expect(await toC.read({ from: taken })).toBe(-1);
    const borrowed = await b.borrow(taken);
    expect(region.grants).toBe(1);
    expect(await borrowed.put(new Uint8Array(8).fill(1), { offset: 16, notify: 5 })).toBe(8);
    expect(memory[16]).toBe(1);
    const [first] = await borrowed.pull(BigUint64Array, { offset: 16, length: 8 });
    expect(first).toBe(0x0101010101010101n);
    const parts = [
      { offset: 16, local: new Uint8Array(4) },
      { offset: 0, local: new Uint8Array(4) },
    ];
    expect(await borrowed.getv(parts)).toBe(8);
    expect(await borrowed.putv(parts)).toBe(8);
    borrowed.dispose();
    borrowed.dispose();
    await until(() => region.grants === 0, "the region comes back");
    expect(await failure(borrowed.get(new Uint8Array(1)))).toMatchObject({
      code: "failed_precondition",
      message: expect.stringContaining("been returned"),
    });
    region.dispose();
  });

  it("can be borrowed by again at once, over the connection that was made for it", async () => {
    const { c, fromA, region } = await three(provider, new Uint8Array(64));
    const taken = await fromA.take({});
    for (let i = 0; i < 5; i++) {
      await using borrowed = await c.borrow(taken);
      expect(await borrowed.get(new Uint8Array(64))).toBe(64);
    }
    // The other session is that of the client that `c` serves.
    await until(() => region.grants === 0 && c.stats().sessions === 1, "everything has been returned");
    expect(c.stats().counters.sessionsOpened).toBe(2);
    region.dispose();
  });

  it("is good for nothing when its region is gone, its lease is over, or it was made up", async () => {
    const { b, owner, region, fromA } = await three(provider, new Uint8Array(100));
    const taken = await fromA.take({});
    const forged = (change: object): RegionHandle => {
      const { urls, incarnation, byteLength: bytes } = taken;
      const made = { urls, incarnation, token: tokenOf(taken), bytes, access: 3, leaseMs: 1000, ...change };
      return new (taken.constructor as never as new (parts: object) => RegionHandle)(made);
    };
    expect(await failure(b.borrow(forged({ token: new Uint8Array(16) })))).toMatchObject({
      code: "not_found",
    });
    expect(await failure(b.borrow(forged({ incarnation: 5n })))).toMatchObject({ code: "not_found" });
    expect(await failure(b.borrow(forged({ leaseMs: 0 })))).toMatchObject({ code: "deadline_exceeded" });
    expect(await failure(b.borrow(forged({ bytes: 99 })))).toMatchObject({ code: "invalid_argument" });
    expect(
      await failure(b.borrow(forged({ incarnation: 5n, urls: [provider.deadUrl()] }), { timeoutMs: 300 })),
    ).toMatchObject({
      code: "unavailable",
    });
    await expect(b.borrow({} as never)).rejects.toThrow(TypeError);
    expect(await failure(owner.borrow(taken))).toMatchObject({ code: "failed_precondition" });
    region.dispose();
    expect(await failure(b.borrow(taken))).toMatchObject({ code: "not_found" });
    expect(() => region.share()).toThrow("failed_precondition");
    expect(() => b.expose(new Uint8Array(1), { access: "read" }).share()).toThrow(
      "the engine does not listen",
    );
    await b.close();
  });

  it("ends with its lease, in the middle of a borrower's transfers", async () => {
    const { b, region, fromA } = await three(provider, new Uint8Array(1 << 20));
    // Time to borrow and to begin a transfer, on a slow machine too.
    await using borrowed = await b.borrow(await fromA.take({ leaseMs: 1500 }));
    const local = new Uint8Array(1 << 20);
    const error = await failure(
      (async () => {
        for (;;) await borrowed.get(local);
      })(),
    );
    expect(error).toMatchObject({ code: "deadline_exceeded", message: expect.stringContaining("lease") });
    expect(borrowed.signal.reason).toBe(error);
    await until(() => region.grants === 0, "the region comes back");
    region.dispose();
  });

  it.each(["revoke", "dispose"] as const)(
    "ends by its owner's %s, in the middle of a borrower's transfers, and the memory is the owner's again",
    async (how) => {
      const memory = new Uint8Array(4 << 20);
      const { b, region, fromA } = await three(provider, memory);
      const borrowed = await b.borrow(await fromA.take({}));
      const local = new Uint8Array(4 << 20).fill(1);
      let puts = 0;
      const putting = failure(
        (async () => {
          for (;;) {
            await borrowed.put(local);
            puts++;
          }
        })(),
      );
      await until(() => puts > 0, "it puts");
      if (how === "revoke") await region.revoke();
      else await region[Symbol.asyncDispose]();
      memory.fill(0);
      expect(await putting).toMatchObject({
        code: "aborted",
        message: expect.stringContaining("has disposed it"),
      });
      await borrowed[Symbol.asyncDispose]();
      expect(memory.every((byte) => byte === 0)).toBe(true);
    },
  );

  it("is let go of when its borrower gives up, and when its owner does not answer in time", async () => {
    const { b, region, fromA } = await three(provider, new Uint8Array(100));
    const taken = await fromA.take({});
    const controller = new AbortController();
    const given = failure(b.borrow(taken, { signal: controller.signal }));
    controller.abort();
    expect(await given).toMatchObject({ code: "cancelled" });
    await until(() => region.grants === 0, "nothing is lent");
    await using borrowed = await b.borrow(taken);
    expect(await borrowed.get(new Uint8Array(100))).toBe(100);
    region.dispose();
  });
});

describe("a handle of an engine that listens on every interface", () => {
  it("is completed with the address by which its sender was reached, and refused where that is not known", async () => {
    const owner = await openEngine({
      listen: "tcp://0.0.0.0:0",
      serve: [implement(Shelf, { take: () => region.share() as never, read: () => 0 })],
    });
    using region = owner.expose(new Uint8Array(10), { access: "read_write" });
    const port = new URL((owner.urls[0] as string).replace("tcp:", "http:")).port;
    const near = await openEngine();
    const taken = await (await near.connect(`tcp://127.0.0.1:${port}`)).client(Shelf).take({});
    expect(taken.urls).toEqual([`tcp://127.0.0.1:${port}`]);
    const far = await openEngine();
    await using borrowed = await far.borrow(taken);
    expect(await borrowed.get(new Uint8Array(10))).toBe(10);
    const third = await openEngine();
    expect(await failure(third.borrow(region.share()))).toMatchObject({
      code: "unavailable",
      message: expect.stringContaining("listens on every interface"),
    });
  });
});

it("may be borrowed by one peer so many times at once, and any number of times one after another", async () => {
  const mem = providers[0] as (typeof providers)[number];
  const { api, client, server } = await pair(mem, [
    implement(Shelf, { take: () => region.share(), read: () => 0 }),
  ]);
  using region = server.expose(new Uint8Array(8), { access: "read_write" });
  const taken = await api(Shelf).take({});
  for (let i = 0; i < 300; i++) (await client.borrow(taken)).dispose();
  await until(() => region.grants === 0, "all have been given back");
  const borrowed = await Promise.all(Array.from({ length: 256 }, () => client.borrow(taken)));
  expect(await failure(client.borrow(taken))).toMatchObject({ code: "resource_exhausted" });
  for (const each of borrowed) each.dispose();
  await until(() => region.grants === 0, "all have been given back");
});

it("says at once why its owner cannot lend", async () => {
  // So many pieces make a longer descriptor than the owner may send.
  const pieces = Array.from({ length: 2000 }, (_, i) => new Uint8Array(scattered, 16 * i, 8));
  const mem = providers[0] as (typeof providers)[number];
  const { api, client, server } = await pair(
    mem,
    [implement(Shelf, { take: () => region.share(), read: () => 0 })],
    {
      server: { limits: { maxBodyBytes: 1024 } },
    },
  );
  using region = server.expose(pieces, { access: "read_write" });
  expect(await failure(client.borrow(await api(Shelf).take({})))).toMatchObject({ code: "invalid_argument" });
});

const scattered = new ArrayBuffer(32_000);

it("names each address of an owner that cannot be reached in the borrower's time", async () => {
  const silent = await Promise.all([listenSilently(), listenSilently()]);
  const urls = silent.map(({ port }) => `tcp://127.0.0.1:${port}`);
  const stranger = new RegionHandle({
    urls,
    incarnation: 1n,
    token: new Uint8Array(handleTokenBytes),
    bytes: 8,
    access: 1,
    leaseMs: 60_000,
  });
  const engine = await openEngine();
  const { code, message } = await failure(engine.borrow(stranger, { timeoutMs: 100 }));
  expect(code).toBe("unavailable");
  for (const url of urls) expect(message).toContain(url);
  for (const { close } of silent) close();
});

/** Takes connections and says nothing. */
async function listenSilently(): Promise<{ readonly port: number; close(): void }> {
  const sockets: Socket[] = [];
  const server = createServer((socket) => sockets.push(socket.on("error", () => {})));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    port: (server.address() as AddressInfo).port,
    close() {
      server.close();
      for (const socket of sockets) socket.destroy();
    },
  };
}
