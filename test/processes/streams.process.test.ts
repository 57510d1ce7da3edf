import { afterEach, describe, expect, it } from "vitest";
import { isLong } from "../matrix/long.ts";
import { Flow } from "./programs/stream-service.ts";
import { Child } from "./support/child.ts";
import { fabrics, freshUrl, underSanitizers } from "./support/fabrics.ts";
import { endAllPeers, mebi, openEngine, outcome, until } from "./support/peers.ts";

afterEach(endAllPeers);

const heartbeatMs = 1500;

async function start(fabric: (typeof fabrics)[number], options: object = {}) {
  const child = new Child("streamer", { listen: freshUrl(fabric), heartbeatMs, ...options });
  const { urls } = await child.report("listening");
  return { child, url: urls[0] as string };
}

describe.each(fabrics)("streams between processes over %s", (fabric) => {
  it("end at the server when their consumer is killed", async () => {
    const producer = await start(fabric);
    const consumer = await start(fabric);
    await consumer.child.ask("read", { url: producer.url });
    await consumer.child.report("reading");
    consumer.child.kill("SIGKILL");
    expect(await producer.child.report("ended")).toMatchObject({ aborted: true });
    const engine = await openEngine({ heartbeatMs });
    const flow = (await engine.connect(producer.url)).client(Flow);
    expect(await flow.add([1, 2, 3])).toBe(6);
    await until(async () => (await producer.child.ask<{ streamBytes: number }>("stats")).streamBytes === 0);
  });

  it("fail at the client, behind the items that had come, when their producer is killed", async () => {
    const { child, url } = await start(fabric);
    const engine = await openEngine({ heartbeatMs });
    const flow = (await engine.connect(url)).client(Flow);
    const stream = flow.count({ to: 2000 }, { window: { items: 3000 }, idleTimeoutMs: false });
    const endless = flow.count({});
    await stream.next();
    await endless.next();
    await until(() => engine.stats().counters.itemsReceived >= 2000);
    child.kill("SIGKILL");
    let read = 1;
    const reading = (async () => {
      for await (const n of endless) if (n !== read++) throw new Error(`${n} came instead of ${read - 1}`);
    })();
    expect(await outcome(reading)).toBe("unavailable");
    expect(read).toBeGreaterThan(1);
    await until(() => engine.stats().calls.out === 0 && engine.stats().streamBytes === 0);
  });

  it("outlive a consumer that stands still for less than the bound", async () => {
    const producer = await start(fabric, { heartbeatMs: 20_000 });
    const consumer = await start(fabric, { heartbeatMs: 20_000 });
    await consumer.child.ask("read", { url: producer.url });
    await consumer.child.report("reading");
    await consumer.child.stop();
    const engine = await openEngine({ heartbeatMs: 20_000 });
    const flow = (await engine.connect(producer.url)).client(Flow);
    const before = await producer.child.ask<{ counters: { itemsSent: number } }>("stats");
    // Others go on meanwhile, and the stopped one gets no more than its window.
    for (let i = 0; i < 50; i++) expect(await flow.add([i])).toBe(i);
    if (isLong) await new Promise((resolve) => setTimeout(resolve, 3000));
    const during = await producer.child.ask<{ counters: { itemsSent: number } }>("stats");
    expect(during.counters.itemsSent - before.counters.itemsSent).toBeLessThan(3000);
    consumer.child.kill("SIGCONT");
    await until(async () => {
      const { counters } = await producer.child.ask<{ counters: { itemsSent: number } }>("stats");
      return counters.itemsSent > during.counters.itemsSent + 5000;
    });
    expect(consumer.child.stderr).toBe("");
  });

  it("move much through a slow consumer at bounded memory on both sides", async () => {
    const bytes = (isLong ? 1024 : 128) * mebi;
    const producer = await start(fabric);
    const consumer = await start(fabric);
    const drink = { url: producer.url, piece: 64 * 1024 };
    // What the first megabytes take is not what is asked for: code and slabs.
    await consumer.child.ask("drink", { ...drink, bytes: 8 * mebi, pauseMs: 0 });
    const started = await Promise.all([producer, consumer].map(({ child }) => child.ask<number>("mostRss")));
    expect(await consumer.child.ask("drink", { ...drink, bytes, pauseMs: 1 })).toBe(bytes);
    const most = await Promise.all([producer, consumer].map(({ child }) => child.ask<number>("mostRss")));
    const grown = most.map((rss, index) => Math.round((rss - (started[index] as number)) / mebi));
    console.log(`${fabric}: ${bytes / mebi} MiB by a slow consumer, grown by ${grown.join(" and ")} MiB`);
    // The collector lets some garbage stand; a side that kept what it moved would grow by all of it.
    // A sanitizer keeps what was freed, to find who uses it again.
    if (!underSanitizers) for (const mib of grown) expect(mib).toBeLessThan(isLong ? 300 : 100);
  });

  it("and one-way calls at five times what the server can do leave it in order", async () => {
    const { child, url } = await start(fabric, {
      admission: { maxConcurrent: 4, maxQueued: 64, maxQueueMs: 60_000 },
    });
    const engine = await openEngine({ heartbeatMs });
    const honest = await openEngine({ heartbeatMs });
    const flow = (await engine.connect(url)).client(Flow);
    const other = (await honest.connect(url)).client(Flow, { priority: "control" });
    // Four handlers of 5 ms each: 800 a second. In an open loop of 4000 a second, for half a second.
    const sent: Promise<string>[] = [];
    for (let tick = 0; tick < 50; tick++) {
      for (let i = 0; i < 40; i++) sent.push(outcome(flow.work({ ms: 5 })));
      await new Promise((resolve) => setTimeout(resolve, 10));
      if (tick % 10 === 0) expect(await other.add([tick])).toBe(tick);
    }
    const outcomes = await Promise.all(sent);
    expect(new Set(outcomes).size).toBeLessThanOrEqual(2);
    await until(() => engine.stats().calls.out + engine.stats().calls.waiting === 0);
    const { worked, failed } = await child.ask<{ worked: number; failed: number }>("worked");
    const left = outcomes.filter((each) => each === "answered").length;
    // Each that left was executed or told of, once.
    expect(worked + failed).toBe(left);
    expect(worked).toBeGreaterThan(50);
    expect(await child.ask<object>("stats")).toMatchObject({ calls: { in: 0 }, queuedBytes: 0 });
  });
});
