import { type CallContext, type ClientOptions, implement, service, unary } from "cinnabar";
import { BulkStream, bulkStream, readable, writable } from "cinnabar-bulk";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { pair } from "../../../test/matrix/pair.ts";
import { type Provider, providers } from "../../../test/matrix/providers.ts";
import { failure, until } from "../../../test/matrix/wait.ts";

const Lend = service("lend.v1", {
  up: unary({ input: z.object({ data: bulkStream("read") }), timeoutMs: 100 }),
  down: unary({ input: z.object({ data: bulkStream("write") }), timeoutMs: 100 }),
});

const [mem] = providers as [Provider];
const small = { chunkBytes: 4096, chunks: 2 };
const waits = (call: CallContext) =>
  new Promise<void>((_, reject) => call.signal.addEventListener("abort", () => reject(call.signal.reason)));
const reads = async (data: Parameters<typeof readable>[1], call: CallContext) => {
  for await (const _ of readable(call, data));
};
const writes = async (data: Parameters<typeof writable>[1], call: CallContext) => {
  const writer = writable(call, data).getWriter();
  await writer.write(new Uint8Array(10));
  await writer.close();
};

interface Handlers {
  up?(data: Parameters<typeof readable>[1], call: CallContext): Promise<void>;
  down?(data: Parameters<typeof writable>[1], call: CallContext): Promise<void>;
}

async function lending({ up = reads, down = writes }: Handlers = {}, options?: ClientOptions) {
  const { client, api } = await pair(
    mem,
    [implement(Lend, { up: ({ data }, call) => up(data, call), down: ({ data }, call) => down(data, call) })],
    { server: { onHandlerError: () => {} } },
  );
  return { engine: client, api: api(Lend, options) };
}

describe("at the deadline the error names", () => {
  it("a byte stream that the caller did not write", async () => {
    const { engine, api } = await lending();
    const error = await failure(api.up({ data: new BulkStream(engine, "read", small) }));
    expect(error).toMatchObject({ code: "deadline_exceeded" });
    const advice =
      ": nothing was written into its byte stream: write into `writable`, and close it, while the call runs";
    expect((error as Error).message.endsWith(advice)).toBe(true);
    expect((error as Error).stack).toContain(advice);
  });

  it("one that the caller did not close", async () => {
    const { engine, api } = await lending();
    const data = new BulkStream(engine, "read", small);
    const time = new AbortController();
    const answer = failure(api.up({ data }, { timeoutMs: 60_000, signal: time.signal }));
    const writer = data.writable.getWriter();
    writer.closed.catch(() => {});
    await writer.write(new Uint8Array(8192));
    await until(() => engine.stats().controlRequests.in === 1, "the handler waits for more");
    time.abort(new DOMException("", "TimeoutError"));
    expect(await answer).toMatchObject({
      code: "deadline_exceeded",
      message: expect.stringMatching(/: its byte stream was not closed: close `writable` at its end$/),
    });
  });

  it("one that the handler did not read", async () => {
    const { engine, api } = await lending({ up: (_, call) => waits(call) });
    const data = new BulkStream(engine, "read", small);
    const answer = failure(api.up({ data }));
    const writer = data.writable.getWriter();
    writer.closed.catch(() => {});
    await writer.write(new Uint8Array(10));
    expect(await answer).toMatchObject({
      code: "deadline_exceeded",
      message: expect.stringMatching(
        /: the handler did not read its byte stream: it reads `readable\(call, stream\)`$/,
      ),
    });
  });

  it.each([
    ["the handler writes", writes],
    ["nobody touches", (_: unknown, call: CallContext) => waits(call)],
  ])("one that the caller did not read, and that %s", async (_, down) => {
    const { engine, api } = await lending({ down });
    const error = await failure(api.down({ data: new BulkStream(engine, "write", small) }));
    expect(error).toMatchObject({
      code: "deadline_exceeded",
      message: expect.stringMatching(/: its byte stream was not read: read `readable` while the call runs$/),
    });
  });

  it("it through middleware of the client, too", async () => {
    const { engine, api } = await lending({}, { middleware: [(_, next) => next()] });
    expect(await failure(api.up({ data: new BulkStream(engine, "read", small) }))).toMatchObject({
      code: "deadline_exceeded",
      message: expect.stringContaining("nothing was written into its byte stream"),
    });
  });
});

describe("no byte stream is blamed", () => {
  it("at a deadline that passes although the stream has ended well", async () => {
    const { engine, api } = await lending({
      async up(data, call) {
        await reads(data, call);
        await waits(call);
      },
    });
    const data = new BulkStream(engine, "read", small);
    const time = new AbortController();
    const answer = failure(api.up({ data }, { timeoutMs: 60_000, signal: time.signal }));
    await new Blob(["all of it"]).stream().pipeTo(data.writable);
    time.abort(new DOMException("", "TimeoutError"));
    expect(await answer).toMatchObject({
      code: "deadline_exceeded",
      message: expect.not.stringContaining("byte stream"),
    });
  });

  it("for a call that ends for another reason", async () => {
    const { engine, api } = await lending({ up: () => Promise.reject(new Error("no room")) });
    expect(await failure(api.up({ data: new BulkStream(engine, "read", small) }))).toMatchObject({
      code: "internal",
      message: expect.not.stringContaining("byte stream"),
    });
  });
});
