import { bulkStream, implement, service, unary } from "cinnabar";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { pair } from "../matrix/pair.ts";
import { providers } from "../matrix/providers.ts";

const Streams = service("streams.v1", {
  both: unary({ input: z.object({ one: bulkStream("read"), two: bulkStream("write") }), output: z.string() }),
});

describe.each(providers)("streams that a handler opens over $name", (provider) => {
  it("hold no more of its memory than maxPullBytes, and give it back with the call", async () => {
    const chunkBytes = 256 * 1024;
    const { api, client, server } = await pair(
      provider,
      [
        implement(Streams, {
          both({ one, two }, call) {
            call.readable(one);
            expect(server.stats().pullingBytes).toBe(2 * chunkBytes);
            call.writable(two);
            return "both are open";
          },
        }),
      ],
      { server: { limits: { maxPullBytes: 3 * chunkBytes } } },
    );
    const one = client.bulkStream("read", { chunkBytes });
    const two = client.bulkStream("write", { chunkBytes });
    await expect(api(Streams).both({ one, two })).rejects.toMatchObject({
      code: "resource_exhausted",
      message: expect.stringContaining("maxPullBytes"),
    });
    expect(server.stats().pullingBytes).toBe(0);
  });
});
