import { implement, RpcError, service, unary } from "cinnabar";
import { BulkStream, bulkStream, readable, writable } from "cinnabar-bulk";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { pair } from "../../../test/matrix/pair.ts";
import { providers, transports } from "../../../test/matrix/providers.ts";
import { deferred, failure, until } from "../../../test/matrix/wait.ts";
import { Checked, pieces, randomNumbers } from "../../../test/memory/support/byte-source.ts";

const Streams = service("streams.v1", {
  upload: unary({
    input: z.object({ data: bulkStream("read"), own: z.boolean().optional() }),
    output: z.object({ bytes: z.number(), sum: z.number() }),
    timeoutMs: 60_000,
  }),
  download: unary({
    input: z.object({ into: bulkStream("write"), bytes: z.number(), seed: z.number() }),
    output: z.number(),
    timeoutMs: 60_000,
  }),
  run: unary({ input: z.object({ data: bulkStream("read") }), timeoutMs: 60_000 }),
  feed: unary({ input: z.object({ into: bulkStream("write") }), timeoutMs: 60_000 }),
});

type Handlers = Parameters<typeof implement<typeof Streams>>[1];

const serving = (handlers: Partial<Handlers> = {}) =>
  implement(Streams, {
    async upload({ data, own }, call) {
      const read = new Checked();
      const stream = readable(call, data);
      if (own !== true) for await (const bytes of stream) read.take(bytes);
      else {
        const reader = stream.getReader({ mode: "byob" });
        let buffer = new Uint8Array(1000);
        for (;;) {
          const { done, value } = await reader.read(buffer);
          if (done || value === undefined) break;
          read.take(value as Uint8Array);
          buffer = new Uint8Array((value as Uint8Array).buffer as ArrayBuffer);
        }
      }
      return read.result;
    },
    async download({ into, bytes, seed }, call) {
      const writer = writable(call, into).getWriter();
      const sent = new Checked();
      for (const piece of pieces(bytes, seed)) {
        sent.take(piece);
        await writer.write(piece);
      }
      await writer.close();
      return sent.result.sum;
    },
    run: () => {},
    feed: () => {},
    ...handlers,
  });

const small = { chunkBytes: 4096, chunks: 2 };

/** Nothing, whole chunks and one byte off them, and a dozen others. */
function lengths(random: (below: number) => number): number[] {
  return [0, 1, 4095, 4096, 4097, 8192, 40_960, ...Array.from({ length: 12 }, () => random(300_000))];
}

describe.each(transports)("a byte stream over $name", (provider) => {
  it("carries bytes of any number to the handler, in order, whatever the pieces and chunks", async () => {
    const { api, client } = await pair(provider, [serving()]);
    const random = randomNumbers(1);
    for (const [index, bytes] of lengths(random).entries()) {
      const stream = new BulkStream(client, "read", {
        chunkBytes: 4096 + random(20_000),
        chunks: 2 + random(4),
      });
      const answer = api(Streams).upload({ data: stream, own: index % 3 === 0 });
      const writer = stream.writable.getWriter();
      const sent = new Checked();
      for (const piece of pieces(bytes, index)) {
        sent.take(piece);
        await writer.write(piece);
      }
      await writer.close();
      expect(await answer).toEqual(sent.result);
      expect(sent.result.bytes).toBe(bytes);
    }
  });

  it("carries bytes of any number from the handler", async () => {
    const { api, client } = await pair(provider, [serving()]);
    const random = randomNumbers(2);
    for (const [seed, bytes] of lengths(random).entries()) {
      const into = new BulkStream(client, "write", {
        chunkBytes: 4096 + random(20_000),
        chunks: 2 + random(4),
      });
      const sum = api(Streams).download({ into, bytes, seed });
      const read = new Checked();
      for await (const piece of into.readable) read.take(piece);
      expect(read.result).toEqual({ bytes, sum: await sum });
    }
  });

  it("moves much by default, with no more under way than the ring", async () => {
    const { api, client, server } = await pair(provider, [serving()]);
    const bytes = provider.carriesLargest ? 48 << 20 : 5 << 20;
    const into = new BulkStream(client, "write");
    const sum = api(Streams).download({ into, bytes, seed: 3 });
    const read = new Checked();
    await into.readable.pipeTo(
      new WritableStream({
        write: (piece: Uint8Array) => {
          read.take(piece);
          // What the other side has put and nobody has read is in the ring.
          expect(server.stats().counters.bytesPut - read.result.bytes).toBeLessThanOrEqual(12 << 20);
        },
      }),
    );
    expect(read.result).toEqual({ bytes, sum: await sum });
  });

  it("holds a writer back until the handler reads, and hands over what there is without waiting for a chunk to fill", async () => {
    const begin = deferred();
    const got: number[] = [];
    const { api, client } = await pair(provider, [
      serving({
        async run({ data }, call) {
          await begin.promise;
          for await (const piece of readable(call, data)) got.push(piece.byteLength);
        },
      }),
    ]);
    const stream = new BulkStream(client, "read", small);
    const call = api(Streams).run({ data: stream });
    const writer = stream.writable.getWriter();
    let written = 0;
    const writing = (async () => {
      for (let i = 0; i < 5; i++) {
        await writer.write(new Uint8Array(4096));
        written++;
      }
    })();
    await new Promise(setImmediate);
    await new Promise(setImmediate);
    expect(written).toBeLessThanOrEqual(2);
    begin.resolve();
    await writing;
    await writer.write(Uint8Array.of(1, 2, 3));
    await until(
      () => got.reduce((sum, bytes) => sum + bytes, 0) === 5 * 4096 + 3,
      "three bytes arrive by themselves",
    );
    await writer.close();
    await call;
  });

  it("fails the handler's side with the reason of the writer's abort", async () => {
    const failed = deferred<unknown>();
    const { api, client } = await pair(provider, [
      serving({
        async run({ data }, call) {
          try {
            for await (const _ of readable(call, data));
          } catch (error) {
            failed.resolve(error);
          }
        },
      }),
    ]);
    const stream = new BulkStream(client, "read", small);
    const call = api(Streams).run({ data: stream });
    const writer = stream.writable.getWriter();
    await writer.write(new Uint8Array(10_000));
    await writer.abort(new Error("the disk is on fire"));
    expect(await failed.promise).toMatchObject({
      code: "cancelled",
      message: expect.stringContaining("the disk is on fire"),
    });
    await call;
    await expect(writer.closed).rejects.toThrow("the disk is on fire");
  });

  it("fails the writer with the reason of the handler's cancel", async () => {
    const { api, client } = await pair(provider, [
      serving({
        async run({ data }, call) {
          const reader = readable(call, data).getReader();
          await reader.read();
          await reader.cancel(new RpcError({ code: "resource_exhausted", message: "the disk is full" }));
        },
      }),
    ]);
    const stream = new BulkStream(client, "read", small);
    const call = api(Streams).run({ data: stream });
    const writer = stream.writable.getWriter();
    const writing = failure(
      (async () => {
        for (;;) await writer.write(new Uint8Array(4096));
      })(),
    );
    expect(await writing).toMatchObject({
      code: "resource_exhausted",
      message: expect.stringContaining("the disk is full"),
    });
    await call;
  });

  it("fails the reader with the reason of the handler's abort, and the handler with that of the reader's cancel", async () => {
    const failed = deferred<unknown>();
    let abort = true;
    const { api, client } = await pair(provider, [
      serving({
        async feed({ into }, call) {
          const writer = writable(call, into).getWriter();
          await writer.write(new Uint8Array(100));
          if (abort) return writer.abort(new Error("no more today"));
          try {
            for (;;) await writer.write(new Uint8Array(4096));
          } catch (error) {
            failed.resolve(error);
          }
        },
      }),
    ]);
    const first = new BulkStream(client, "write", small);
    const call = api(Streams).feed({ into: first });
    const error = await failure(
      (async () => {
        for await (const _ of first.readable);
      })(),
    );
    expect(error).toMatchObject({ code: "cancelled", message: expect.stringContaining("no more today") });
    await call;
    abort = false;
    const second = new BulkStream(client, "write", small);
    const again = api(Streams).feed({ into: second });
    const reader = second.readable.getReader();
    await reader.read();
    await reader.cancel(new Error("enough"));
    expect(await failed.promise).toMatchObject({ message: expect.stringContaining("enough") });
    await again;
  });

  it("ends with an error on both sides when its call is cancelled, runs out of time, or returns early", async () => {
    const ended: unknown[] = [];
    const { api, client } = await pair(provider, [
      serving({
        async run({ data }, call) {
          const reader = readable(call, data).getReader();
          await reader.read();
          reader.closed.catch((error) => ended.push(error.code));
          // The first returns in the middle; the others wait for more than comes.
          if (ended.length > 0 || left) await reader.read();
        },
      }),
    ]);
    let left = false;
    const codes: string[] = [];
    for (const how of ["return", "cancel", "deadline"] as const) {
      left = how !== "return";
      const stream = new BulkStream(client, "read", small);
      const controller = new AbortController();
      const call = api(Streams).run.result(
        { data: stream },
        { signal: controller.signal, ...(how === "deadline" ? { timeoutMs: 150 } : {}) },
      );
      const writer = stream.writable.getWriter();
      writer.write(new Uint8Array(100)).catch(() => {});
      if (how === "cancel") {
        await until(() => stream.writable.locked, "begun");
        controller.abort();
      }
      codes.push((await failure(writer.closed)).code);
      await call;
    }
    expect(codes).toEqual(["failed_precondition", "cancelled", "deadline_exceeded"]);
  });

  it("ends with an error when the peer is gone, never with a clean end", async () => {
    const reading = deferred();
    const failed = deferred<unknown>();
    const { api, client } = await pair(
      provider,
      [
        serving({
          async run({ data }, call) {
            try {
              for await (const _ of readable(call, data)) reading.resolve();
              failed.resolve("a clean end");
            } catch (error) {
              failed.resolve((error as RpcError).code);
            }
          },
        }),
      ],
      { endsHard: true },
    );
    const stream = new BulkStream(client, "read", small);
    const call = failure(api(Streams).run({ data: stream }));
    const writer = stream.writable.getWriter();
    await writer.write(new Uint8Array(5000));
    await reading.promise;
    await client.close();
    expect(await call).toMatchObject({ code: "unavailable" });
    expect((await failure(writer.closed)).code).toBe("unavailable");
    expect(await failed.promise).toBe("unavailable");
  });

  it("goes with one call, and is opened once, in its own direction", async () => {
    const said: string[] = [];
    const { api, client } = await pair(provider, [
      serving({
        async run({ data }, call) {
          const note = (open: () => unknown) => {
            try {
              open();
            } catch (error) {
              said.push((error as Error).message);
            }
          };
          note(() => writable(call, data as never));
          const stream = readable(call, data);
          note(() => readable(call, data));
          for await (const _ of stream);
        },
      }),
    ]);
    const stream = new BulkStream(client, "read", small);
    expect(() => stream.writable && (stream as never as { readable: unknown }).readable).toThrow(TypeError);
    const call = api(Streams).run({ data: stream });
    await stream.writable.close();
    await call;
    expect(said).toEqual([
      expect.stringContaining('of direction "write"'),
      expect.stringContaining("is open already"),
    ]);
    expect(await failure(api(Streams).run({ data: stream }))).toMatchObject({ code: "failed_precondition" });
    expect(() => new BulkStream(client, "both" as never)).toThrow(TypeError);
    expect(() => new BulkStream(client, "read", { chunkBytes: 1 })).toThrow(RangeError);
    expect(() => new BulkStream(client, "read", { chunks: 1 })).toThrow(RangeError);
  });
});

it("a session carries any number of byte streams, one after another", async () => {
  const mem = providers[0] as (typeof providers)[number];
  const { api, client } = await pair(mem, [serving({ run: async () => undefined })]);
  for (let i = 0; i < 300; i++) {
    const data = new BulkStream(client, "read", { chunkBytes: 4096, chunks: 2 });
    await api(Streams).run({ data });
  }
});
