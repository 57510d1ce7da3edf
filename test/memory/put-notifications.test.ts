import { bulk, implement, service, unary } from "cinnabar";
import { describe, expect, it, vi } from "vitest";
import { z } from "zod";
import { MemPort } from "../../src/fabric/mem-port.ts";
import { access, defaultLayout } from "../../src/fabric/port.ts";
import { putNotificationData } from "../../src/memory/put-notification.ts";
import { pair } from "../matrix/pair.ts";
import { providers, transports } from "../matrix/providers.ts";
import { isSecured } from "../matrix/secured.ts";
import { failure } from "../matrix/wait.ts";

const Pages = service("pages.v1", {
  fill: unary({
    input: z.object({ into: bulk("write"), count: z.int(), first: z.int().optional() }),
    output: z.int(),
  }),
  long: unary({ input: z.object({ into: bulk("write"), bytes: z.int(), count: z.int() }) }),
  lend: unary({ input: z.object({ into: bulk("write") }) }),
  odd: unary({ input: z.object({ into: bulk("write"), notify: z.unknown() }) }),
});

const pageBytes = 4096;
/** The key of what `lend` holds. */
let lent = 0n;
const serving = implement(Pages, {
  async fill({ into, count, first = 0 }, call) {
    for (let page = 0; page < count; page++) {
      const offset = (page * pageBytes) % into.byteLength;
      await call.put(new Uint8Array(pageBytes).fill(page + 1), into, { offset, notify: first + page });
    }
    return count;
  },
  async long({ into, bytes, count }, call) {
    for (let n = 1; n <= count; n++) await call.put(new Uint8Array(bytes).fill(n), into, { notify: n });
  },
  async lend({ into }, call) {
    lent = (into as unknown as { grantKey: bigint }).grantKey;
    await new Promise((_, reject) => call.signal.addEventListener("abort", reject));
  },
  async odd({ into, notify }, call) {
    await call.put(new Uint8Array(1), into, { notify: notify as number });
  },
});

describe.each(transports)("the put notification of a put over $name", (provider) => {
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

  it.each([
    ["a put of many chunks", (2 << 20) + 1, [(2 << 20) + 1]],
    ["a put into two pieces of memory", 30_000, [10_000, 20_000]],
  ])("comes once, with all bytes in place, for %s", async (_, bytes, pieces) => {
    const { api, client } = await pair(provider, [serving]);
    const memory = pieces.map((length) => new Uint8Array(length));
    using region = client.expose(memory, { access: "write" });
    const call = api(Pages).long({ into: region, bytes, count: 3 });
    const told: number[] = [];
    for await (const { n, bytes: moved } of region.notifications()) {
      expect(moved).toBe(bytes);
      // The next one may be under way already, and what it has brought is later, never earlier.
      for (const piece of memory)
        expect(Math.min(piece[0] as number, piece.at(-1) as number)).toBeGreaterThanOrEqual(n);
      if (told.push(n) === 3) break;
    }
    await call;
    expect(told).toEqual([1, 2, 3]);
  });

  it("waits for a reader, until too many wait: then the sender is told, or else the reader", async () => {
    const { api, client } = await pair(provider, [serving]);
    using region = client.expose(new Uint8Array(pageBytes), { access: "write" });
    // A thousand puts, one after the other.
    const pages = api(Pages, { timeoutMs: 60_000 });
    expect(await pages.fill({ into: region, count: 1000 })).toBe(1000);
    const [filled] = await Promise.allSettled([pages.fill({ into: region, count: 100, first: 1000 })]);
    // Which one it is, is a matter of the provider. Over a sealed session the notification is a message of its own.
    const carries =
      !isSecured && /\bmem\/|node:net\/|\btcp\/2\d\d\./.test(client.stats().ports[0]?.agent ?? "");
    expect(filled.status).toBe(carries ? "fulfilled" : "rejected");
    const read: number[] = [];
    const exhausted = { code: "resource_exhausted" };
    if (filled.status === "rejected") {
      expect(filled.reason).toMatchObject({
        ...exhausted,
        message: expect.stringContaining("1024 put notifications"),
      });
      for await (const { n } of region.notifications()) if (read.push(n) === 1024) break;
    } else {
      const reading = (async () => {
        for await (const { n } of region.notifications()) read.push(n);
      })();
      expect(await failure(reading)).toMatchObject({
        ...exhausted,
        message: expect.stringContaining("put notifications were lost"),
      });
    }
    expect(read).toEqual(Array.from({ length: 1024 }, (_, n) => n));
    expect(await pages.fill({ into: region, count: 1, first: 5000 })).toBe(1);
    expect((await region.notifications().next()).value?.n).toBe(5000);
    expect(client.stats().counters.malformed).toBe(0);
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

// Nothing is sealed over mem.
describe.skipIf(isSecured)("a put notification on the fabric", () => {
  const mem = providers.find(({ scheme }) => scheme === "mem") as (typeof providers)[number];

  it("for no grant is counted, tells nobody, and ends no session; a peer that knows the key can give any", async () => {
    const { api, client, peer } = await pair(mem, [serving], { endsHard: true });
    const over = new AbortController();
    using region = client.expose(new Uint8Array(100), { access: "write" });
    const call = failure(api(Pages).lend({ into: region }, { signal: over.signal }));
    await vi.waitFor(() => expect(lent).not.toBe(0n), { timeout: 20_000 });
    const address = client.stats().ports.find(({ provider }) => provider === "mem")?.url ?? "";
    const forger = new MemPort({ scheme: "mem", host: "", port: 0, name: "" }, defaultLayout);
    const to = forger.admit(Buffer.from(address.slice("mem://".length)));
    const local = forger.register(new ArrayBuffer(10), 0, 10, access.local);
    const write = (data: bigint) =>
      forger.transfer("write", to, [{ local, offset: 0, bytes: 10, key: lent, remote: 0n }], owner, data);
    for (let i = 1n; i <= 100n; i++) write(putNotificationData(lent + i, 1));
    write(putNotificationData(lent, 9));
    expect((await region.notifications().next()).value).toEqual({ n: 9, bytes: 10 });
    expect(client.stats().counters.malformed).toBe(100);
    expect(peer.state).toBe("connected");
    over.abort();
    expect((await call).code).toBe("cancelled");
    forger.close();
  });
});

const owner = { onTransferred() {} };
