import { bulk, implement, service, unary } from "cinnabar";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { pair } from "../matrix/pair.ts";
import { providers } from "../matrix/providers.ts";
import { failure } from "../matrix/wait.ts";

const Pages = service("pages.v1", {
  fill: unary({
    input: z.object({ into: bulk("write"), count: z.int(), first: z.int().optional() }),
    output: z.int(),
  }),
  odd: unary({ input: z.object({ into: bulk("write"), notify: z.unknown() }) }),
});

const pageBytes = 4096;
const serving = implement(Pages, {
  async fill({ into, count, first = 0 }, call) {
    for (let page = 0; page < count; page++) {
      const offset = (page * pageBytes) % into.byteLength;
      await call.put(new Uint8Array(pageBytes).fill(page + 1), into, { offset, notify: first + page });
    }
    return count;
  },
  async odd({ into, notify }, call) {
    await call.put(new Uint8Array(1), into, { notify: notify as number });
  },
});

describe.each(providers)("the notice of a put over $name", (provider) => {
  it("comes when the bytes are in place, in order", async () => {
    const { api, client } = await pair(provider, [serving]);
    const memory = new Uint8Array(20 * pageBytes);
    using region = client.expose(memory, { access: "write" });
    const call = api(Pages).fill({ into: region, count: 20, first: 2 ** 32 - 20 });
    let page = 0;
    for await (const { n, bytes } of region.notifications()) {
      expect([n, bytes]).toEqual([2 ** 32 - 20 + page, pageBytes]);
      expect(memory[page * pageBytes]).toBe(page + 1);
      expect(memory[(page + 1) * pageBytes - 1]).toBe(page + 1);
      if (++page === 20) break;
    }
    expect(await call).toBe(20);
  });

  it("waits for a reader, until too many wait", async () => {
    const { api, client } = await pair(provider, [serving]);
    using region = client.expose(new Uint8Array(pageBytes), { access: "write" });
    expect(await api(Pages).fill({ into: region, count: 1000 })).toBe(1000);
    const error = await failure(api(Pages).fill({ into: region, count: 100 }));
    expect(error).toMatchObject({
      code: "resource_exhausted",
      message: expect.stringContaining("1024 notifications"),
    });
    let read = 0;
    for await (const _ of region.notifications()) if (++read === 1024) break;
    expect(await api(Pages).fill({ into: region, count: 1 })).toBe(1);
  });

  it("ends with its region", async () => {
    const { api, client } = await pair(provider, [serving]);
    const region = client.expose(new Uint8Array(pageBytes), { access: "write" });
    await api(Pages).fill({ into: region, count: 2 });
    const read: number[] = [];
    for await (const { n } of region.notifications()) {
      read.push(n);
      region.dispose();
    }
    expect(read).toEqual([0, 1]);
    expect(() => region.notifications()).toThrow("failed_precondition");
  });

  it("has a number that fits", async () => {
    const { api, client } = await pair(provider, [serving], { server: { onHandlerError: () => {} } });
    using region = client.expose(new Uint8Array(pageBytes), { access: "write" });
    using empty = client.expose(new Uint8Array(0), { access: "write" });
    for (const notify of [-1, 2 ** 32, 0.5, "1"])
      expect((await failure(api(Pages).odd({ into: region, notify }))).code).toBe("internal");
    expect((await failure(api(Pages).odd({ into: empty, notify: 1 }))).code).toBe("out_of_range");
  });
});
