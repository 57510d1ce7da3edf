import { bulk, implement, RpcError, service, unary } from "cinnabar";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { pair } from "../matrix/pair.ts";
import { transports } from "../matrix/providers.ts";
import { failure } from "../matrix/wait.ts";

const Frames = service("frames.v1", {
  load: unary({ input: z.object({ into: bulk("write"), offset: z.int() }), output: z.string() }),
  sum: unary({ input: z.object({ from: bulk("read") }), output: z.number() }),
});

const bytes = 8 << 20;

/** Fails the test when a promise of this process rejects and nobody has handled it. */
function expectNoUnhandledRejection(): void {
  const seen: unknown[] = [];
  const listener = (reason: unknown) => void seen.push(reason);
  process.on("unhandledRejection", listener);
  onTestFinished(async () => {
    // Node reports rejections between two turns of the loop.
    await new Promise(setImmediate);
    process.off("unhandledRejection", listener);
    expect(seen).toEqual([]);
  });
}

describe.each(transports)("a transfer over $name that the handler does not await", (provider) => {
  const frame = new Uint8Array(bytes).fill(7);
  const served = implement(Frames, {
    load({ into, offset }, call) {
      void call.put(frame, into, { offset });
      return "returned";
    },
    async sum({ from }, call) {
      const memory = new Uint8Array(bytes);
      void call.get(from, memory);
      await Promise.resolve();
      return memory.length;
    },
  });

  it("has moved all bytes when the answer arrives", async () => {
    expectNoUnhandledRejection();
    const { api, client } = await pair(provider, [served]);
    const memory = new Uint8Array(bytes);
    using region = client.expose(memory, { access: "write" });
    expect(await api(Frames).load({ into: region, offset: 0 })).toBe("returned");
    expect(memory.every((byte) => byte === 7)).toBe(true);
    using source = client.expose(frame, { access: "read" });
    expect(await api(Frames).sum({ from: source })).toBe(bytes);
  });

  it("fails the call when it fails, and the owner of the server is told", async () => {
    expectNoUnhandledRejection();
    const told: unknown[] = [];
    const { api, client } = await pair(provider, [served], {
      server: { onHandlerError: (error, { began }) => told.push(error, began) },
    });
    using region = client.expose(new Uint8Array(bytes), { access: "write" });
    const error = await failure(api(Frames).load({ into: region, offset: bytes - 1 }));
    expect(error).toMatchObject({ code: "out_of_range", origin: "remote" });
    expect(told).toEqual([expect.any(RpcError), true]);
    expect(await api(Frames).load({ into: region, offset: 0 })).toBe("returned");
  });

  it("ends with a call that is cancelled", async () => {
    expectNoUnhandledRejection();
    const { api, client } = await pair(provider, [served]);
    using region = client.expose(new Uint8Array(bytes), { access: "write" });
    const controller = new AbortController();
    const call = failure(
      api(Frames)
        .load({ into: region, offset: 0 }, { signal: controller.signal })
        .then(() => {
          // It may be done before the cancellation arrives.
          throw new RpcError({ code: "cancelled", message: "too late" });
        }),
    );
    controller.abort();
    expect(await call).toMatchObject({ code: "cancelled" });
  });
});
