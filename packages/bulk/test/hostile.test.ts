import { randomBytes } from "node:crypto";
import { bulk, bytes, Engine, implement, service, unary } from "cinnabar";
import { BulkStream, bulkStream, type RemoteStream, readable } from "cinnabar-bulk";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { deferred, failure } from "../../../test/matrix/wait.ts";
import { ByteStreams } from "../src/byte-stream/stream-service.ts";
import { remoteDescriptorOf } from "../src/contract/stream-kind.ts";

const Lend = service("lend.v1", {
  up: unary({ input: z.object({ data: bulkStream("read") }), timeoutMs: 30_000 }),
  down: unary({ input: z.object({ data: bulkStream("write") }), timeoutMs: 30_000 }),
});

type Handlers = Parameters<typeof implement<typeof Lend>>[1];

async function opened(options: Parameters<typeof Engine.open>[0] = {}): Promise<Engine> {
  const engine = await Engine.open(options);
  onTestFinished(() => engine.close());
  return engine;
}

let count = 0;

/** A caller that lends a stream to a handler, and an engine without any relation to them. */
async function lending(handlers: Partial<Handlers>) {
  const owner = await opened({ listen: `mem://owner-${++count}` });
  const server = await opened({
    listen: `mem://server-${count}`,
    serve: [implement(Lend, { up: () => {}, down: () => {}, ...handlers })],
  });
  const stranger = await opened();
  const lend = (await owner.connect(server.urls[0] as string)).client(Lend);
  const asks = (await stranger.connect(owner.urls[0] as string)).client(ByteStreams);
  return { owner, lend, asks };
}

const nameOf = (stream: unknown) => remoteDescriptorOf(stream as RemoteStream).stream;
const small = { chunkBytes: 4096, chunks: 2 };

describe("the requests about byte streams", () => {
  it("know no stream that was not sent to the asker, by a made-up name or by its own", async () => {
    const name = deferred<Uint8Array>();
    const release = deferred();
    const { owner, lend, asks } = await lending({
      async up({ data }, call) {
        name.resolve(nameOf(data));
        await release.promise;
        for await (const _ of readable(call, data));
      },
    });
    const data = new BulkStream(owner, "read", small);
    const call = lend.up({ data });
    const writer = data.writable.getWriter();
    const writing = writer.write(new Uint8Array(10_000));
    for (const stream of [randomBytes(16), await name.promise]) {
      expect(await failure(asks.next([stream, 0, 0]))).toMatchObject({ code: "not_found" });
      expect(await failure(asks.push([stream, 0, 1, true]))).toMatchObject({ code: "not_found" });
      // The engine answers, and stops no stream.
      await asks.stop([stream, "cancelled", "ha"]);
    }
    release.resolve();
    await writing;
    await writer.close();
    await call;
  });

  it.each([
    [
      "next",
      [
        [randomBytes(15), 0, 0],
        [randomBytes(16), -1, 0],
        [randomBytes(16), 0.5, 0],
        [randomBytes(16), 0],
        "why",
        7,
      ],
    ],
    [
      "push",
      [
        [randomBytes(16), 0, 1, 1],
        [randomBytes(16), 0, -1, true],
        [randomBytes(16), 0, 2 ** 60, true, 1],
      ],
    ],
    [
      "stop",
      [
        [randomBytes(16), 1, "m"],
        [randomBytes(16), "cancelled", "m".repeat(5000)],
        [undefined, "", ""],
      ],
    ],
  ] as const)("refuse %s in another form", async (method, inputs) => {
    const { owner } = await lending({});
    new BulkStream(owner, "read", small);
    // A contract with the same names that checks nothing.
    const Unchecked = service("cinnabar.streams.v1", {
      next: unary({ input: z.unknown() }),
      push: unary({ input: z.unknown() }),
      stop: unary({ input: z.unknown() }),
    });
    const stranger = await opened();
    const asks = (await stranger.connect(owner.urls[0] as string)).client(Unchecked);
    for (const input of inputs)
      expect(await failure(asks[method](input))).toMatchObject({ code: "invalid_argument" });
  });

  it("give a handler no bytes of a stream that came with another call", async () => {
    const first = deferred<Parameters<Handlers["up"]>[0]["data"]>();
    const release = deferred();
    const { owner, lend } = await lending({
      async up({ data }) {
        first.resolve(data);
        await release.promise;
      },
      async down(_, call) {
        const error = await failure(
          readable(call, await first.promise)
            .getReader()
            .read(),
        );
        release.resolve();
        throw error;
      },
    });
    const up = new BulkStream(owner, "read", small);
    const upped = lend.up({ data: up });
    up.writable
      .getWriter()
      .write(new Uint8Array(5))
      .catch(() => {});
    const downed = failure(lend.down({ data: new BulkStream(owner, "write", small) }));
    expect(await downed).toMatchObject({ code: "permission_denied" });
    await upped;
  });

  it("refuse a handler that asks out of turn, and serve on", async () => {
    const { owner, lend } = await lending({
      async up({ data }, call) {
        const asks = call.caller.client(ByteStreams);
        const stream = nameOf(data);
        for (const [seq, taken] of [
          [1, 0],
          [0, 1],
          [2 ** 40, 0],
        ] as const)
          expect(await failure(asks.next([stream, seq, taken]))).toMatchObject({ code: "invalid_argument" });
        // For a stream of the other direction the name is unknown.
        expect(await failure(asks.push([stream, 0, 1, false]))).toMatchObject({ code: "not_found" });
        for await (const _ of readable(call, data));
      },
      async down({ data }, call) {
        const asks = call.caller.client(ByteStreams);
        const stream = nameOf(data);
        for (const [seq, length] of [
          [1, 1],
          [0, 4097],
          [0, 0],
        ] as const)
          expect(await failure(asks.push([stream, seq, length, false]))).toMatchObject({
            code: "invalid_argument",
          });
        expect(await failure(asks.next([stream, 0, 0]))).toMatchObject({ code: "not_found" });
        await asks.stop([stream, "no_such_code", "over"]);
      },
    });
    const up = new BulkStream(owner, "read", small);
    const upped = lend.up({ data: up });
    await up.writable.close();
    await upped;
    const down = new BulkStream(owner, "write", small);
    const downed = lend.down({ data: down });
    expect(await failure(down.readable.getReader().read())).toMatchObject({
      code: "unknown",
      message: "[unknown] over",
    });
    await downed;
  });

  it("give a reader an error where the caller's answers are nonsense", async () => {
    // A caller by hand: its service has the same names, and reports a chunk that is longer than possible.
    const failed = deferred<unknown>();
    const { owner, lend } = await lending({
      async up({ data }, call) {
        failed.resolve(await failure(readable(call, data).getReader().read()));
      },
    });
    const Lies = service("cinnabar.streams.v1", {
      next: unary({ input: z.unknown(), output: z.unknown() }),
      push: unary({ input: z.unknown(), output: z.unknown() }),
      stop: unary({ input: z.unknown() }),
    });
    owner.serve(implement(Lies, { next: () => [4097, false], push: () => 7, stop: () => {} }));
    using ring = owner.expose(new Uint8Array(8192), { access: "read" });
    await lend.up({ data: { stream: randomBytes(16), chunkBytes: 4096, chunks: 2, ring } as never });
    expect(await failed.promise).toMatchObject({
      code: "internal",
      message: expect.stringContaining("malformed answer about a byte stream"),
    });
  });
});

describe("the engine of the caller", () => {
  it("answers about its streams although it allows nobody anything", async () => {
    const server = await opened({
      listen: `mem://server-${++count}`,
      serve: [
        implement(Lend, {
          down: () => {},
          up: async ({ data }, call) => void (await readable(call, data).getReader().read()),
        }),
      ],
    });
    const owner = await opened({ security: { allow: () => false } });
    const data = new BulkStream(owner, "read", small);
    const call = (await owner.connect(server.urls[0] as string)).client(Lend).up({ data });
    await data.writable.getWriter().write(new Uint8Array(5));
    await call;
  });

  it("answers about its streams while it drains, and while its server has no place in its window", async () => {
    const begun = deferred();
    const { owner, lend } = await lending({
      async up({ data }, call) {
        begun.resolve();
        for await (const _ of readable(call, data));
      },
    });
    const data = new BulkStream(owner, "read", small);
    const call = lend.up({ data });
    await begun.promise;
    const drained = owner.drain({ graceMs: 20_000 });
    const writer = data.writable.getWriter();
    for (let i = 0; i < 5; i++) await writer.write(new Uint8Array(4096));
    await writer.close();
    await call;
    expect(await drained).toMatchObject({ aborted: [] });
    expect(() => new BulkStream(owner, "read")).toThrow("unavailable");
  });
});

it("the ring is nobody's before the call and after it", async () => {
  const { owner, lend } = await lending({});
  const data = new BulkStream(owner, "read", small);
  expect(owner.stats().regions).toBe(0);
  const writer = data.writable.getWriter();
  writer.closed.catch(() => {});
  await lend.up({ data });
  expect(await failure(writer.closed)).toMatchObject({ code: "failed_precondition" });
  expect(owner.stats().regions).toBe(0);
  expect(await failure(lend.up({ data }))).toMatchObject({ code: "failed_precondition" });
});

it("is refused in what cannot carry it", async () => {
  const Loose = service("loose.v1", {
    out: unary({ output: z.unknown() }),
    take: unary({ input: z.unknown(), output: bytes() }),
    read: unary({ input: z.object({ data: bulk("read") }) }),
  });
  const { owner } = await lending({});
  const other = await opened({
    listen: `mem://loose-${count}`,
    serve: [
      implement(Loose, {
        out: () => new BulkStream(other, "read", small),
        take: () => new Uint8Array(0),
        read: () => {},
      }),
    ],
  });
  const client = (await owner.connect(other.urls[0] as string)).client(Loose);
  expect(await failure(client.out())).toMatchObject({ code: "internal" });
});
