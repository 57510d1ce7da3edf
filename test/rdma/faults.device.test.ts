import { bulk, type Engine, implement, service, unary } from "cinnabar";
import { afterEach, describe, expect, it, vi } from "vitest";
import { z } from "zod";
import { fill, firstWrong } from "../bulk/support/pattern.ts";
import { openEngine } from "../matrix/pair.ts";
import { failure, until } from "../matrix/wait.ts";
import { cables } from "./support/cable.ts";

const Blocks = service("blocks.v1", {
  add: unary({ input: z.array(z.number()), output: z.number(), idempotent: true }),
  /** Puts the pattern of a seed into the region, `times` over. */
  fill: unary({ input: z.object({ into: bulk("write"), seed: z.number(), times: z.number() }) }),
  /** Gets the region, and says where the pattern of the seed is broken first. */
  check: unary({ input: z.object({ from: bulk("read"), seed: z.number() }), output: z.number() }),
  /** A body longer than a message. */
  double: unary({ input: z.instanceof(Uint8Array), output: z.instanceof(Uint8Array), idempotent: true }),
});

const bytes = 1 << 20;
/** What a call may end with that lost its connection: anything but a wrong answer. */
const honest = ["unavailable", "deadline_exceeded"];

// A file without any test would count as broken.
if (cables.length === 0) it.skip("verbs: no device is lent to the tests", () => {});

describe.each(cables)("verbs on $name", (cable) => {
  afterEach(() => cable.plug());

  /** The bound of the heartbeat is short, so that a link that is down is noticed soon. */
  async function connected(heartbeatMs = 2_000): Promise<{
    client: Engine;
    server: Engine;
    url: string;
    filling: () => boolean;
  }> {
    let filling = false;
    const blocks = implement(Blocks, {
      add: (numbers) => numbers.reduce((sum, number) => sum + number, 0),
      async fill({ into, seed, times }, call) {
        const block = new Uint8Array(into.byteLength);
        fill(block, seed);
        for (let i = 0; i < times; i++) {
          await call.put(block, into);
          filling = true;
        }
      },
      async check({ from, seed }, call) {
        const block = new Uint8Array(from.byteLength);
        await call.get(from, block);
        return firstWrong(block, seed);
      },
      double: (body) => Buffer.concat([body, body]),
    });
    const server = await openEngine({ listen: cable.urls[0], serve: [blocks], heartbeatMs }, true);
    // After a cable was pulled a connection may take several tries.
    const client = await openEngine({ listen: cable.urls[1], heartbeatMs, connectTimeoutMs: 15_000 }, true);
    return { client, server, url: server.urls[0] as string, filling: () => filling };
  }

  it("ends a call honestly when the link goes down in mid-transfer", async () => {
    const { client, server, url, filling } = await connected();
    const peer = await client.connect(url, { reconnect: { whileLost: "wait" } });
    const api = peer.client(Blocks, { timeoutMs: 20_000 });
    using into = client.expose(new Uint8Array(bytes), { access: "write" });
    const call = failure(api.fill({ into, seed: 3, times: 1_000_000 }));
    await until(filling, "data flows");
    await cable.pull();
    expect(honest).toContain((await call).code);
    await until(() => server.stats().ports.every(({ transfers }) => transfers === 0), "no transfer is left");
  });

  it("connects again when a link that went down in mid-transfer is up", async () => {
    const { client, server, url, filling } = await connected();
    const peer = await client.connect(url, { reconnect: { whileLost: "wait" } });
    const api = peer.client(Blocks, { timeoutMs: 60_000 });
    using into = client.expose(new Uint8Array(bytes), { access: "write" });
    const call = failure(api.fill({ into, seed: 3, times: 1_000_000 }));
    await until(filling, "data flows");
    await cable.pull();
    expect(honest).toContain((await call).code);
    await cable.plug();
    expect(await api.add([1, 2, 3])).toBe(6);
    using again = client.expose(new Uint8Array(bytes), { access: "write" });
    await api.fill({ into: again, seed: 5, times: 2 });
    expect(firstWrong(again.bytes, 5)).toBe(-1);
    await until(() => server.stats().ports.every(({ transfers }) => transfers === 0), "no transfer is left");
  });

  it("fails a connect while the link is down, and is reached when it is up", async () => {
    const { client, url } = await connected();
    await cable.pull();
    expect(honest).toContain((await failure(client.connect(url, { timeoutMs: 3000 }))).code);
    await cable.plug();
    // The kernel may remember for a moment that nobody answered.
    const peer = await vi.waitFor(() => client.connect(url), { timeout: 60_000, interval: 100 });
    expect(await peer.client(Blocks).add([4, 5])).toBe(9);
  });

  it("carries calls, bodies and transfers whole over a link that loses and delays packets", async () => {
    // A link that loses packets is not down: a session must outlast what the device sends again, on a busy machine too.
    const { client, url } = await connected(20_000);
    const api = (await client.connect(url, { reconnect: { whileLost: "wait" } })).client(Blocks, {
      timeoutMs: 60_000,
      retry: { attempts: 5 },
    });
    await cable.disturb("delay", "1ms", "loss", "1%");
    const body = new Uint8Array(100_000);
    fill(body, 7);
    const region = client.expose(new Uint8Array(bytes / 4), { access: "read_write" });
    const outcomes: string[] = [];
    const note = async (work: Promise<unknown>, right: (value: unknown) => boolean) =>
      outcomes.push(
        await work.then(
          (value) => (right(value) ? "right" : "wrong"),
          (error: { code: string }) => error.code,
        ),
      );
    for (let round = 0; round < 3; round++) {
      await note(api.add([round, 1]), (sum) => sum === round + 1);
      await note(api.double(body), (twice) => {
        const all = twice as Uint8Array;
        return firstWrong(all.subarray(0, body.length), 7) === -1 && all.length === 2 * body.length;
      });
      await note(
        api.fill({ into: region, seed: round, times: 1 }),
        () => firstWrong(region.bytes, round) === -1,
      );
      fill(region.bytes, round);
      await note(api.check({ from: region, seed: round }), (at) => at === -1);
    }
    expect(outcomes).not.toContain("wrong");
    expect(outcomes.filter((outcome) => outcome === "right").length).toBeGreaterThan(outcomes.length / 2);
    for (const outcome of outcomes) if (outcome !== "right") expect(honest).toContain(outcome);
    await cable.calm();
    expect(await api.add([1, 1])).toBe(2);
    region.dispose();
    await until(() => region.grants === 0, "nothing is lent any more");
  });
});
