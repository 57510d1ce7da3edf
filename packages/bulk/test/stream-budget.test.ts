import { implement, service, unary } from "cinnabar";
import { BulkStream, bulkStream, readable, writable } from "cinnabar-bulk";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { exact } from "../../../test/matrix/exact-limits.ts";
import { pair } from "../../../test/matrix/pair.ts";
import { transports } from "../../../test/matrix/providers.ts";
import { deferred, failure, fired } from "../../../test/matrix/wait.ts";

const Streams = service("streams.v1", {
  both: unary({ input: z.object({ one: bulkStream("read"), two: bulkStream("write") }), output: z.string() }),
});

describe.each(transports)("streams that a handler opens over $name", (provider) => {
  it("hold no more of its memory than maxPullBytes, and give it back with the call", async () => {
    const chunkBytes = 256 * 1024;
    const { api, client, server } = await pair(
      provider,
      [
        implement(Streams, {
          both({ one, two }, call) {
            readable(call, one);
            expect(server.stats().pullingBytes).toBe(2 * chunkBytes);
            writable(call, two);
            return "both are open";
          },
        }),
      ],
      { server: { limits: exact({ maxPullBytes: 3 * chunkBytes }) } },
    );
    const one = new BulkStream(client, "read", { chunkBytes });
    const two = new BulkStream(client, "write", { chunkBytes });
    await expect(api(Streams).both({ one, two })).rejects.toMatchObject({
      code: "resource_exhausted",
      message: expect.stringContaining("maxPullBytes"),
    });
    expect(server.stats().pullingBytes).toBe(0);
  });

  it("are refused when their call has ended, and hold nothing", async () => {
    const opened = deferred<unknown>();
    const begun = deferred();
    const { api, client, server } = await pair(provider, [
      implement(Streams, {
        async both({ one, two }, call) {
          begun.resolve();
          await fired(call.signal);
          // A handler that goes on has no stream left to open.
          opened.resolve([thrown(() => readable(call, one)), thrown(() => writable(call, two))]);
          return "too late";
        },
      }),
    ]);
    const one = new BulkStream(client, "read");
    const two = new BulkStream(client, "write");
    const abort = new AbortController();
    const call = failure(api(Streams).both({ one, two }, { signal: abort.signal }));
    await begun.promise;
    abort.abort();
    expect(await call).toMatchObject({ code: "cancelled" });
    expect(await opened.promise).toMatchObject([{ code: "cancelled" }, { code: "cancelled" }]);
    expect(server.stats().pullingBytes).toBe(0);
  });

  it("do not get more than maxPullBytes, though nothing else is held", async () => {
    const chunkBytes = 256 * 1024;
    const { api, client, server } = await pair(
      provider,
      [
        implement(Streams, {
          both({ one }, call) {
            readable(call, one);
            return "open";
          },
        }),
      ],
      { server: { limits: exact({ maxPullBytes: chunkBytes }) } },
    );
    const one = new BulkStream(client, "read", { chunkBytes });
    const two = new BulkStream(client, "write", { chunkBytes });
    await expect(api(Streams).both({ one, two })).rejects.toMatchObject({ code: "resource_exhausted" });
    expect(server.stats().pullingBytes).toBe(0);
  });
});

function thrown(work: () => unknown): unknown {
  try {
    work();
    return undefined;
  } catch (error) {
    return error;
  }
}
