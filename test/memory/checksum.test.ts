import { bulk, implement, service, unary } from "cinnabar";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { fill, firstWrong } from "../bulk/support/pattern.ts";
import { pair } from "../matrix/pair.ts";
import { transports } from "../matrix/providers.ts";
import { failure } from "../matrix/wait.ts";

const Sums = service("sums.v1", {
  move: unary({
    input: z.object({
      how: z.string(),
      from: bulk("read").optional(),
      into: bulk("write").optional(),
    }),
    output: z.unknown(),
    timeoutMs: 30_000,
  }),
});

type Move = Parameters<typeof implement<typeof Sums>>[1]["move"];
const options = { checksum: "crc32c" } as const;
const hows = ["get", "put", "getv", "putv", "pull"] as const;

const moving = (move: Move) => implement(Sums, { move });

describe.each(transports)("a checksum over $name", (provider) => {
  it("agrees for every kind of transfer, over segments and parts", async () => {
    const { api, client } = await pair(provider, [
      moving(async ({ from, into }, call) => {
        if (from === undefined || into === undefined) return;
        const bytes = from.byteLength;
        const local = new Uint8Array(bytes);
        const done = [await call.get(from, local, options)];
        done.push((await call.pull(from, Uint8Array, options)).byteLength);
        done.push(await call.put(local, into, options));
        const parts = Array.from({ length: 100 }, (_, i) => ({
          offset: i * 1000,
          length: 500,
          local,
          localOffset: i * 1000,
        }));
        done.push(
          await call.getv(
            parts.map((part) => ({ ...part, remote: from })),
            options,
          ),
        );
        done.push(
          await call.putv(
            parts.map((part) => ({ ...part, remote: into })),
            options,
          ),
        );
        done.push(await call.get(from, local.subarray(0, 0), options));
        return done;
      }),
    ]);
    const bytes = 3_000_000;
    const source = new Uint8Array(bytes);
    fill(source, 5);
    const target = new Uint8Array(bytes);
    const cut = [0, 7, 1_000_001, bytes];
    const pieces = (memory: Uint8Array) => cut.slice(1).map((end, i) => memory.slice(cut[i] as number, end));
    const written = pieces(target);
    using from = client.expose(pieces(source), { access: "read" });
    using into = client.expose(written, { access: "write" });
    expect(await api(Sums).move({ how: "all", from, into })).toEqual([
      bytes,
      bytes,
      bytes,
      50_000,
      50_000,
      0,
    ]);
    expect(firstWrong(new Uint8Array(Buffer.concat(written)), 5)).toBe(-1);
  });

  it.each(hows)("of a %s that differs is data_loss, with both sums", async (how) => {
    const memory = new Uint8Array(100_000);
    const { api, client } = await pair(provider, [
      moving(({ from, into }, call) => {
        if (from === undefined || into === undefined) return 0;
        const local = new Uint8Array(memory.byteLength);
        const part = { offset: 0, length: local.byteLength, local };
        switch (how) {
          case "get":
            return call.get(from, local, options);
          case "put":
            return call.put(local, into, options);
          case "getv":
            return call.getv([{ ...part, remote: from }], options);
          case "putv":
            return call.putv([{ ...part, remote: into }], options);
          case "pull":
            return call.pull(from, Uint8Array, options).then(({ byteLength }) => byteLength);
        }
      }),
    ]);
    using from = client.expose(memory, { access: "read" });
    using into = client.expose(memory, { access: "write" });
    // The owner's memory changes all the time: what was moved is not what is summed.
    let stop = false;
    const changing = (async () => {
      while (!stop) {
        memory[0] = (memory[0] as number) + 1;
        await new Promise(setImmediate);
        await Promise.resolve();
      }
    })();
    let result = await api(Sums).move.result({ how, from, into });
    for (let i = 0; i < 200 && result.ok; i++) result = await api(Sums).move.result({ how, from, into });
    stop = true;
    await changing;
    expect(result).toMatchObject({
      ok: false,
      error: {
        code: "data_loss",
        message: expect.stringMatching(/0x[0-9a-f]{8} at the owner and 0x[0-9a-f]{8} here/),
      },
    });
  });

  it("of an unknown kind is refused", async () => {
    const { api, client } = await pair(
      provider,
      [
        moving(({ from }, call) =>
          from === undefined ? 0 : call.get(from, new Uint8Array(8), { checksum: "md5" as never }),
        ),
      ],
      { server: { onHandlerError: () => {} } },
    );
    using from = client.expose(new Uint8Array(8), { access: "read" });
    expect((await failure(api(Sums).move({ how: "get", from }))).code).toBe("internal");
  });
});
