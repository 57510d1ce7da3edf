import { Worker } from "node:worker_threads";
import { bulk, Engine, type EngineOptions, implement, service, unary } from "cinnabar";
import type { SuiteName } from "cinnabar/options";
import { afterEach, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { anyUrl } from "./support/fabric.ts";

/** Two pieces. */
const bytes = 500_000;
const rounds = 3;
const Store = service("store.v1", {
  read: unary({ input: z.object({ into: bulk("write") }) }),
  write: unary({ input: z.object({ from: bulk("read") }) }),
});

const writers: Worker[] = [];
const endWriters = () => Promise.all(writers.splice(0).map((writer) => writer.terminate()));
afterEach(endWriters);

async function open(options: EngineOptions): Promise<Engine> {
  const engine = await Engine.open(options);
  onTestFinished(() => engine.close());
  return engine;
}

/** Memory that a thread fills with one of these values after the other, without a pause. */
async function writtenMemory(values: readonly number[]): Promise<Uint8Array> {
  const memory = new Uint8Array(new SharedArrayBuffer(bytes)).fill(values[0] as number);
  const code = `const { workerData, parentPort } = require("node:worker_threads");
    parentPort.postMessage("writes");
    for (let i = 0; ; i++) workerData.memory.fill(workerData.values[i % workerData.values.length]);`;
  const writer = new Worker(code, { eval: true, workerData: { memory, values } });
  writers.push(writer);
  await new Promise((resolve) => writer.once("message", resolve));
  return memory;
}

/** A piece that was sealed while its text changed is whole: each byte is one that was there. */
const valuesIn = (memory: Uint8Array) => [...new Set(memory)].sort();

it.each(["aes-256-gcm", "chacha20-poly1305"] as const)(
  "sealed bulk by %s moves memory that another thread writes meanwhile, and finds nothing forged",
  async (suite: SuiteName) => {
    const security = { psk: { identity: "pair", key: Buffer.alloc(32, 3) }, suites: [suite] };
    const written = await writtenMemory([0x11, 0x22]);
    const still = new Uint8Array(bytes);
    const store = implement(Store, {
      // From memory that is written to memory that is not, and the other way round.
      async read({ into }, call) {
        await call.put(written, into);
      },
      async write({ from }, call) {
        await call.get(from, written);
      },
    });
    const server = await open({ listen: anyUrl, serve: [store], security });
    const client = await open({ security });
    const api = (await client.connect(server.urls[0] as string)).client(Store, { timeoutMs: 30_000 });
    for (let round = 0; round < rounds; round++) {
      still.fill(0);
      using into = client.expose(still, { access: "write" });
      await api.read({ into });
      expect([0x11, 0x22]).toEqual(expect.arrayContaining(valuesIn(still)));
      still.fill(0x22);
      using from = client.expose(still, { access: "read" });
      await api.write({ from });
    }
    await endWriters();
    // The memory that the peer pulls from, or puts into, is written by a thread of this side.
    const lent = await writtenMemory([0x33, 0x44]);
    using from = client.expose(lent, { access: "read" });
    using into = client.expose(lent, { access: "write" });
    for (let round = 0; round < rounds; round++) {
      await api.write({ from });
      await api.read({ into });
    }
    expect([0x11, 0x22, 0x33, 0x44]).toEqual(expect.arrayContaining(valuesIn(lent)));
    expect(client.stats().counters.messagesForged + server.stats().counters.messagesForged).toBe(0);
  },
);
