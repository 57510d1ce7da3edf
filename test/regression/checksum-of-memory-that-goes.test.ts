import { bulk, implement, service, unary } from "cinnabar";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { pair } from "../matrix/pair.ts";
import { transports } from "../matrix/providers.ts";

const Sums = service("sums.v1", {
  move: unary({ input: z.object({ from: bulk("read") }), output: z.unknown() }),
});

const options = { checksum: "crc32c" } as const;

// What threw in the middle of its turn kept the turn, and every later checksum of the process waited for it.
describe.each(transports)("memory that is detached while it is summed over $name", (provider) => {
  it("holds up no other checksum", async () => {
    const bytes = 8 << 20;
    const { api, client } = await pair(provider, [
      implement(Sums, {
        async move({ from }, call) {
          const gone = new Uint8Array(bytes);
          const first = call.get(from, gone, options);
          const ended = first.then(
            () => "resolved",
            () => "rejected",
          );
          await first.landed;
          // Its sum has begun: it is between two of its slices.
          await new Promise(setImmediate);
          structuredClone(gone.buffer, { transfer: [gone.buffer] });
          const second = await call.get(from, new Uint8Array(bytes), options);
          return [await ended, second];
        },
      }),
    ]);
    using from = client.expose(new Uint8Array(bytes).fill(3), { access: "read" });
    expect(await api(Sums).move({ from })).toEqual(["rejected", bytes]);
  });
});
