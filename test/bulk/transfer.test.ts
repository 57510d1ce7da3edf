import { bulk, implement, type RemoteRegion, service, unary } from "cinnabar";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { openEngine, pair } from "../matrix/pair.ts";
import { transports } from "../matrix/providers.ts";
import { deferred, failure, until } from "../matrix/wait.ts";
import { fill, firstWrong } from "./support/pattern.ts";

const range = z.object({
  offset: z.number().optional(),
  length: z.number().optional(),
  localOffset: z.number().optional(),
});
const plain = (value: z.infer<typeof range>) => JSON.parse(JSON.stringify(value));

const Move = service("move.v1", {
  /** Pulls into `size` bytes and gives them back. */
  get: unary({
    input: z.object({ from: bulk("read"), size: z.number(), range }),
    output: z.instanceof(Uint8Array),
  }),
  /** Pushes `size` bytes of pattern `seed`. */
  put: unary({
    input: z.object({ into: bulk("write"), size: z.number(), seed: z.number(), range }),
    output: z.number(),
  }),
  both: unary({ input: z.object({ both: bulk("read_write") }), output: z.number() }),
  any: unary({ input: z.unknown(), output: z.unknown() }),
});

type Any = Parameters<typeof implement<typeof Move>>[1]["any"];

const moving = (any: Any = (input) => input) =>
  implement(Move, {
    async get({ from, size, range }, call) {
      const local = new Uint8Array(size);
      await call.get(from, local, plain(range));
      return local;
    },
    put({ into, size, seed, range }, call) {
      const local = new Uint8Array(size);
      fill(local, seed);
      return call.put(local, into, plain(range));
    },
    async both({ both }, call) {
      const local = new Uint8Array(both.byteLength);
      await call.get(both, local);
      for (let i = 0; i < local.length; i++) local[i] = (local[i] as number) ^ 0xff;
      return call.put(local, both);
    },
    any,
  });

/** Views of every kind, at odd places inside a larger buffer. */
const views: readonly (readonly [string, (buffer: ArrayBuffer) => ArrayBufferView])[] = [
  ["Uint8Array", (buffer) => new Uint8Array(buffer, 3, 41)],
  ["Int8Array", (buffer) => new Int8Array(buffer, 5, 41)],
  ["Uint8ClampedArray", (buffer) => new Uint8ClampedArray(buffer, 7, 41)],
  ["Int16Array", (buffer) => new Int16Array(buffer, 6, 20)],
  ["Uint16Array", (buffer) => new Uint16Array(buffer, 2, 20)],
  ["Int32Array", (buffer) => new Int32Array(buffer, 4, 10)],
  ["Uint32Array", (buffer) => new Uint32Array(buffer, 12, 10)],
  ["Float32Array", (buffer) => new Float32Array(buffer, 4, 10)],
  ["Float64Array", (buffer) => new Float64Array(buffer, 8, 5)],
  ["BigInt64Array", (buffer) => new BigInt64Array(buffer, 8, 5)],
  ["BigUint64Array", (buffer) => new BigUint64Array(buffer, 16, 5)],
  ["DataView", (buffer) => new DataView(buffer, 1, 43)],
  ["Buffer", (buffer) => Buffer.from(buffer, 9, 31)],
];

describe.each(transports)("a transfer over $name", (provider) => {
  it("puts a whole region and gets it back", async () => {
    const { api, client, server } = await pair(provider, [moving()]);
    for (const size of [1, 2, 7, 4095, 4096, 65_537, 1 << 20, (1 << 20) + 1, (5 << 20) - 3]) {
      const memory = new Uint8Array(size);
      using region = client.expose(memory, { access: "read_write" });
      expect(await api(Move).put({ into: region, size, seed: 5, range: {} })).toBe(size);
      expect(firstWrong(memory, 5)).toBe(-1);
      fill(memory, 9);
      const got = await api(Move).get({ from: region, size, range: {} });
      expect(got).toHaveLength(size);
      expect(firstWrong(got, 9)).toBe(-1);
    }
    const { bytesGot, bytesPut } = server.stats().counters;
    expect(bytesGot).toBe(bytesPut);
    expect(bytesGot).toBeGreaterThan(6 << 20);
  });

  it("touches what offset, length and localOffset say, and nothing around it", async () => {
    const { api, client } = await pair(provider, [moving()]);
    const memory = new Uint8Array(100).fill(0xee);
    using region = client.expose(memory, { access: "read_write" });
    const { put, get } = api(Move);
    expect(
      await put({ into: region, size: 20, seed: 1, range: { offset: 40, length: 10, localOffset: 7 } }),
    ).toBe(10);
    const source = new Uint8Array(20);
    fill(source, 1);
    expect([...memory.subarray(40, 50)]).toEqual([...source.subarray(7, 17)]);
    expect([...memory.subarray(0, 40), ...memory.subarray(50)]).toEqual(new Array(90).fill(0xee));
    // Without a length it is all of the local memory from localOffset on.
    expect(await put({ into: region, size: 20, seed: 2, range: { offset: 95, localOffset: 15 } })).toBe(5);
    const got = await get({ from: region, size: 12, range: { offset: 44, length: 4, localOffset: 8 } });
    expect([...got]).toEqual([0, 0, 0, 0, 0, 0, 0, 0, ...source.subarray(11, 15)]);
    // To the last byte, and nothing at all at the very end.
    expect(await put({ into: region, size: 1, seed: 1, range: { offset: 99 } })).toBe(1);
    expect(await put({ into: region, size: 1, seed: 1, range: { offset: 100, length: 0 } })).toBe(0);
    expect(await put({ into: region, size: 0, seed: 1, range: {} })).toBe(0);
    expect(await get({ from: region, size: 0, range: {} })).toHaveLength(0);
  });

  it("moves an empty region", async () => {
    const { api, client } = await pair(provider, [moving()]);
    using region = client.expose(new Uint8Array(0), { access: "read_write" });
    expect(await api(Move).put({ into: region, size: 0, seed: 1, range: {} })).toBe(0);
    expect(await api(Move).get({ from: region.slice(0), size: 0, range: {} })).toHaveLength(0);
    const error = await failure(api(Move).put({ into: region, size: 1, seed: 1, range: {} }));
    expect(error).toMatchObject({ code: "out_of_range" });
  });

  it("leaves the bytes around the region alone, wherever its view lies", async () => {
    const { api, client } = await pair(provider, [moving()]);
    for (const [name, view] of views) {
      const memory = new Uint8Array(64).fill(0xaa);
      const exposed = view(memory.buffer);
      using region = client.expose(exposed, { access: "read_write" });
      const size = exposed.byteLength;
      expect(region.byteLength, name).toBe(size);
      expect(await api(Move).put({ into: region, size, seed: 3, range: {} }), name).toBe(size);
      expect(firstWrong(region.bytes, 3), name).toBe(-1);
      const end = exposed.byteOffset + size;
      const canaries = [...memory.subarray(0, exposed.byteOffset), ...memory.subarray(end)];
      expect(canaries, name).toEqual(new Array(64 - size).fill(0xaa));
      expect(firstWrong(await api(Move).get({ from: region, size, range: {} }), 3), name).toBe(-1);
    }
  });

  it("takes local memory of every kind", async () => {
    const pooled = Buffer.from("out of Node's own pool of small buffers");
    const { api, client, server } = await pair(provider, [
      moving(async (input, call) => {
        const { both } = input as { both: RemoteRegion<"read_write"> };
        for (const [, view] of views) {
          const memory = new Uint8Array(64).fill(0xaa);
          const local = view(memory.buffer);
          await call.get(both, local, { length: local.byteLength });
          expect([...memory.subarray(0, local.byteOffset)].every((byte) => byte === 0xaa)).toBe(true);
          await call.put(local, both);
        }
        await call.put(pooled, both, { offset: 64 });
        using own = server.expose(new Uint8Array(64), { access: "read" });
        return call.get(both, own);
      }),
    ]);
    const memory = new Uint8Array(128);
    fill(memory, 4);
    using both = client.expose(memory, { access: "read_write" });
    expect(await api(Move).any({ both })).toBe(64);
    expect(firstWrong(memory.subarray(0, 64), 4)).toBe(-1);
    expect(Buffer.from(memory.subarray(64, 64 + pooled.length)).toString()).toBe(pooled.toString());
  });

  it("takes memory shared between threads, or says clearly that it does not", async () => {
    const { api, client } = await pair(provider, [moving()]);
    const memory = new Uint8Array(new SharedArrayBuffer(100), 10, 50);
    using region = client.expose(memory, { access: "read_write" });
    const result = await api(Move).put.result({ into: region, size: 50, seed: 6, range: {} });
    if (result.ok) expect(firstWrong(memory, 6)).toBe(-1);
    else expect(result.error.message).toContain("SharedArrayBuffer");
  });

  it("lends slices, and slices of slices, at both sides", async () => {
    const { api, client } = await pair(provider, [
      moving(async (input, call) => {
        const { into } = input as { into: RemoteRegion<"write"> };
        const inner = into.slice(2, 10).slice(3);
        expect(inner.byteLength).toBe(7);
        expect(() => inner.slice(1, 7)).toThrow("out_of_range");
        expect(() => inner.slice(-1)).toThrow("out_of_range");
        return call.put(new Uint8Array(7).fill(9), inner);
      }),
    ]);
    const memory = new Uint8Array(100);
    using region = client.expose(memory, { access: "read_write" });
    const slice = region.slice(10, 50).slice(5, 20);
    expect(slice.byteLength).toBe(20);
    expect(slice.bytes.byteOffset).toBe(15);
    expect(await api(Move).any({ into: slice })).toBe(7);
    const expected = new Uint8Array(100).fill(9, 20, 27);
    expect([...memory]).toEqual([...expected]);
    for (const [offset, length] of [
      [0, 101],
      [100, 1],
      [-1, 1],
      [0.5, 1],
      [0, Number.NaN],
      [2 ** 53, 1],
    ]) {
      expect(() => region.slice(offset as number, length), `${offset} ${length}`).toThrow("out_of_range");
    }
    expect(region.slice(100).byteLength).toBe(0);
  });

  it("refuses what lies outside the region or the local memory, before anything moves", async () => {
    const { api, client } = await pair(provider, [moving()]);
    const memory = new Uint8Array(100).fill(1);
    using region = client.expose(memory, { access: "read_write" });
    const ranges = [
      { size: 101, range: {} },
      { size: 10, range: { offset: 91 } },
      { size: 10, range: { offset: -1 } },
      { size: 10, range: { offset: 0.5 } },
      { size: 10, range: { offset: 2 ** 60 } },
      { size: 10, range: { length: 11 } },
      { size: 10, range: { length: -1 } },
      { size: 10, range: { localOffset: 11 } },
      { size: 10, range: { localOffset: 5, length: 6 } },
    ];
    for (const each of ranges) {
      const error = await failure(api(Move).put({ into: region, seed: 1, ...each }));
      expect(error, JSON.stringify(each)).toMatchObject({ code: "out_of_range", origin: "remote" });
      expect(await failure(api(Move).get({ from: region, ...each }))).toMatchObject({ code: "out_of_range" });
    }
    expect([...memory].every((byte) => byte === 1)).toBe(true);
  });

  it("refuses the wrong access by the schema, and at run time where no schema looks", async () => {
    const { api, client } = await pair(provider, [
      moving(async (input, call) => {
        const { op, region } = input as { op: string; region: RemoteRegion };
        const local = new Uint8Array(4);
        return op === "get" ? call.get(region as never, local) : call.put(local, region as never);
      }),
    ]);
    using readable = client.expose(new Uint8Array(4), { access: "read" });
    using writable = client.expose(new Uint8Array(4), { access: "write" });
    const bySchema = await failure(api(Move).put({ into: readable as never, size: 1, seed: 1, range: {} }));
    expect(bySchema).toMatchObject({ code: "invalid_argument", origin: "local" });
    expect(bySchema.message).toContain('exposed as "read"');
    for (const [op, region] of [
      ["put", readable],
      ["get", writable],
    ]) {
      expect(await failure(api(Move).any({ op, region }))).toMatchObject({ code: "permission_denied" });
    }
    expect(await api(Move).any({ op: "get", region: readable })).toBe(4);
    expect(await api(Move).any({ op: "put", region: writable })).toBe(4);
  });

  it("carries several regions in one call, nested in objects and arrays, even one of them twice", async () => {
    const { api, client } = await pair(provider, [
      moving(async (input, call) => {
        const { list, deep, again } = input as {
          list: RemoteRegion<"write">[];
          deep: { er: { in: RemoteRegion<"read"> } };
          again: RemoteRegion<"read">;
        };
        const local = new Uint8Array(8);
        await call.get(deep.er.in, local);
        await call.get(again, local);
        await Promise.all(list.map((region) => call.put(local, region)));
        return list.length;
      }),
    ]);
    const memories = Array.from({ length: 40 }, () => new Uint8Array(8));
    const regions = memories.map((memory) => client.expose(memory, { access: "write" }));
    using from = client.expose(new Uint8Array([1, 2, 3, 4, 5, 6, 7, 8]), { access: "read" });
    expect(await api(Move).any({ list: regions, deep: { er: { in: from } }, again: from })).toBe(40);
    for (const memory of memories) expect([...memory]).toEqual([1, 2, 3, 4, 5, 6, 7, 8]);
    await until(() => from.grants === 0, "both grants are back");
    for (const region of regions) region.dispose();
  });

  it("lends one region to fifty calls at once", async () => {
    const gate = deferred();
    const { api, client, server } = await pair(provider, [
      moving(async (input, call) => {
        const { index, into } = input as { index: number; into: RemoteRegion<"write"> };
        await gate.promise;
        return call.put(new Uint8Array(10).fill(index), into, { offset: index * 10 });
      }),
    ]);
    const memory = new Uint8Array(500);
    using into = client.expose(memory, { access: "write" });
    const calls = Array.from({ length: 50 }, (_, index) => api(Move).any({ index, into }));
    await until(() => server.stats().calls.in === 50, "all handlers run");
    expect(into.grants).toBe(50);
    gate.resolve();
    expect(await Promise.all(calls)).toEqual(new Array(50).fill(10));
    expect([...memory]).toEqual(Array.from({ length: 500 }, (_, index) => Math.floor(index / 10)));
    expect(into.grants).toBe(0);
  });

  it("lends a region to several peers, and one that was exposed by another engine", async () => {
    const one = await pair(provider, [moving()]);
    const two = await pair(provider, [moving()]);
    using region = one.client.expose(new Uint8Array(64), { access: "read_write" });
    const second = await one.client.connect(two.url);
    for (const api of [one.api(Move), second.client(Move), two.api(Move)]) {
      expect(await api.both({ both: region })).toBe(64);
    }
    expect([...region.bytes]).toEqual(new Array(64).fill(0xff));
  });

  it("moves 64 MiB, every byte of it", { skip: !provider.carriesLargest }, async () => {
    const { api, client } = await pair(provider, [moving()]);
    const size = 64 << 20;
    const memory = new Uint8Array(size);
    using region = client.expose(memory, { access: "read_write" });
    const options = { timeoutMs: 60_000 };
    expect(await api(Move).put({ into: region, size, seed: 8, range: {} }, options)).toBe(size);
    expect(firstWrong(memory, 8)).toBe(-1);
    expect(firstWrong(await api(Move).get({ from: region, size, range: {} }, options), 8)).toBe(-1);
  });

  it("refuses what is no region, view or option, naming it", async () => {
    const { client } = await pair(provider, [moving()]);
    const { api } = await pair(provider, [
      moving(async (input, call) => {
        const { from } = input as { from: RemoteRegion<"read"> };
        const local = new Uint8Array(4);
        const said: string[] = [];
        for (const attempt of [
          () => call.get({} as never, local),
          () => call.get(from, [1, 2] as never),
          () => call.get(from, local, { start: 1 } as never),
          () => call.get(from, null as never),
        ]) {
          said.push(await attempt().then(String, (error: Error) => `${error.name}: ${error.message}`));
        }
        return said;
      }),
    ]);
    using region = client.expose(new Uint8Array(4), { access: "read" });
    expect(await api(Move).any({ from: region })).toEqual([
      expect.stringMatching(/^TypeError: get: the remote region must come from this call/),
      expect.stringMatching(/^TypeError: get: local memory must be/),
      expect.stringMatching(/^TypeError: get: unknown option "start"/),
      expect.stringMatching(/^TypeError: get: local memory must be/),
    ]);
    const expose = client.expose.bind(client) as (view: unknown, options: unknown) => unknown;
    expect(() => expose([1], { access: "read" })).toThrow("view 0 must be");
    expect(() => expose(new ArrayBuffer(1), { access: "read" })).toThrow("view must be");
    expect(() => expose(new Uint8Array(1), { access: "rw" })).toThrow('"rw"');
    expect(() => expose(new Uint8Array(1), {})).toThrow("expose: access is missing");
    expect(() => expose(new Uint8Array(1), { access: "read", pin: true })).toThrow('unknown option "pin"');
    const resizable = Reflect.construct(ArrayBuffer, [8, { maxByteLength: 16 }]) as ArrayBuffer;
    expect(() => expose(new Uint8Array(resizable), { access: "read" })).toThrow("resizable");
    const growable = Reflect.construct(SharedArrayBuffer, [8, { maxByteLength: 16 }]) as SharedArrayBuffer;
    expect(() => expose(new Uint8Array(growable), { access: "read" })).toThrow("resizable");
  });

  it("closes with regions still exposed", async () => {
    const engine = await openEngine({ listen: provider.freshUrl() }, true);
    const region = engine.expose(new Uint8Array(100), { access: "read" });
    await engine.close();
    expect(region.disposed).toBe(true);
    expect(() => engine.expose(new Uint8Array(1), { access: "read" })).toThrow("closed");
    region.dispose();
  });
});
