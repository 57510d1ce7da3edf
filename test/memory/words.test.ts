import { bulk, implement, type RemoteRegion, service, unary } from "cinnabar";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { pair } from "../matrix/pair.ts";
import { transports } from "../matrix/providers.ts";

const Words = service("words.v1", {
  run: unary({ input: z.object({ memory: z.unknown() }), output: z.unknown() }),
  typed: unary({ input: z.object({ memory: bulk("read_write") }), output: z.unknown() }),
});

type Run = Parameters<typeof implement<typeof Words>>[1]["run"];
const running = (run: (memory: RemoteRegion<"read_write">, call: Parameters<Run>[1]) => unknown) =>
  implement(Words, {
    run: ({ memory }, call) => run(memory as RemoteRegion<"read_write">, call),
    typed: async ({ memory }, call) => call.word(memory, 8).fetchAdd(1n),
  });

const most = 2n ** 64n - 1n;

const code = (promise: Promise<unknown>) =>
  promise.then(
    () => "done",
    (error: { code?: string; name: string }) => error.code ?? error.name,
  );

describe.each(transports)("a word of lent memory over $name", (provider) => {
  it.each([
    ["an ArrayBuffer", () => new ArrayBuffer(64)],
    ["a SharedArrayBuffer", () => new SharedArrayBuffer(64)],
  ])("in %s is read and changed, and gives what was there before", async (_, make) => {
    const { api, client } = await pair(provider, [
      running(async (memory, call) => {
        const word = call.word(memory.slice(8), 8);
        return [
          await word.read(),
          await word.swap(most),
          await word.fetchAdd(2n),
          await word.compareAndSwap(7n, 8n),
          await word.compareAndSwap(1n, 2n ** 63n),
          await word.read(),
        ];
      }),
    ]);
    const memory = make();
    const words = new BigUint64Array(memory);
    words[2] = 5n;
    using region = client.expose(words, { access: "read_write" });
    expect(await api(Words).run({ memory: region })).toEqual([5n, 5n, most, 1n, 1n, 2n ** 63n]);
    expect([...words]).toEqual([0n, 0n, 2n ** 63n, 0n, 0n, 0n, 0n, 0n]);
    expect(await api(Words).typed({ memory: region })).toBe(0n);
    expect(words[1]).toBe(1n);
  });

  it("takes additions by many calls at once, and loses none", async () => {
    const { api, client } = await pair(provider, [
      running(async (memory, call) => {
        const word = call.word(memory);
        return Promise.all(Array.from({ length: 500 }, () => word.fetchAdd(1n)));
      }),
    ]);
    const words = new BigUint64Array(1);
    using region = client.expose(words, { access: "read_write" });
    const all = await Promise.all(Array.from({ length: 8 }, () => api(Words).run({ memory: region })));
    expect(words[0]).toBe(4000n);
    expect(new Set((all as bigint[][]).flat()).size).toBe(4000);
  });

  it("is refused where it does not fit, is not allowed, or is no word", async () => {
    const { api, client } = await pair(provider, [
      running(async (memory, call) => {
        const made = async (offset: number) => call.word(memory, offset).read();
        const word = call.word(memory);
        return [
          await code(made(4)),
          await code(made(64)),
          await code(made(-8)),
          await code(made(0.5)),
          await code(word.swap(-1n)),
          await code(word.swap(2n ** 64n)),
          await code(word.swap(1 as never)),
          await code((async () => call.word(new Uint8Array(8) as never))()),
        ];
      }),
    ]);
    const memory = new ArrayBuffer(64);
    using region = client.expose(new Uint8Array(memory), { access: "read_write" });
    expect(await api(Words).run({ memory: region })).toEqual([
      "invalid_argument",
      "out_of_range",
      "out_of_range",
      "out_of_range",
      "invalid_argument",
      "invalid_argument",
      "invalid_argument",
      "TypeError",
    ]);
  });

  it("is refused when its owner's memory is not aligned, or it lies across segments", async () => {
    const { api, client } = await pair(provider, [
      running((memory, call) =>
        Promise.all([0, 8].map((offset) => code(call.word(memory, offset).fetchAdd(1n)))),
      ),
    ]);
    const memory = new ArrayBuffer(64);
    using odd = client.expose(new Uint8Array(memory, 4, 24), { access: "read_write" });
    expect(await api(Words).run({ memory: odd })).toEqual(["invalid_argument", "invalid_argument"]);
    using pieces = client.expose([new Uint8Array(memory, 0, 12), new Uint8Array(memory, 16, 12)], {
      access: "read_write",
    });
    expect(await api(Words).run({ memory: pieces })).toEqual(["done", "invalid_argument"]);
    expect(new BigUint64Array(memory)[0]).toBe(1n);
  });

  it("is read where the region was lent for reading, and changed only where it was for both", async () => {
    const { api, client } = await pair(provider, [
      running(async (memory, call) => {
        const word = call.word(memory);
        return [await code(word.read()), await code(word.fetchAdd(1n))];
      }),
    ]);
    using readable = client.expose(new BigUint64Array(1), { access: "read" });
    using writable = client.expose(new BigUint64Array(1), { access: "write" });
    expect(await api(Words).run({ memory: readable })).toEqual(["done", "permission_denied"]);
    expect(await api(Words).run({ memory: writable })).toEqual(["permission_denied", "permission_denied"]);
  });

  it("is out of reach when its call has ended", async () => {
    let kept: { read(): Promise<bigint> } | undefined;
    const { api, client } = await pair(provider, [
      running((memory, call) => {
        kept = call.word(memory);
      }),
    ]);
    using region = client.expose(new BigUint64Array(1), { access: "read_write" });
    await api(Words).run({ memory: region });
    expect(await code((kept as { read(): Promise<bigint> }).read())).toBe("failed_precondition");
  });
});
