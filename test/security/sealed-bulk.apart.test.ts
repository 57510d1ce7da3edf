import { bulk, Engine, type EngineOptions, implement, type SecurityOptions, service, unary } from "cinnabar";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";

const bytes = 700_001;
const Store = service("store.v1", {
  swap: unary({
    input: z.object({ from: bulk("read"), into: bulk("write"), body: z.instanceof(Uint8Array) }),
    output: z.object({ body: z.instanceof(Uint8Array), regions: z.int() }),
  }),
});

async function open(options: EngineOptions): Promise<Engine> {
  const engine = await Engine.open(options);
  onTestFinished(() => engine.close());
  return engine;
}

const regionsOf = (engine: Engine) => engine.stats().ports.reduce((sum, { regions }) => sum + regions, 0);

/** Moves bytes both ways, and says how much memory the caller had registered while its handler ran. */
async function swap(
  here: Partial<SecurityOptions>,
  there: Partial<SecurityOptions>,
  url: string,
): Promise<number> {
  const psk = { identity: "pair", key: Buffer.alloc(32, 3) };
  let caller: Engine | undefined;
  const store = implement(Store, {
    async swap({ from, into, body }, call) {
      // Before anything is staged.
      const regions = regionsOf(caller as Engine);
      const got = await call.pull(from, Uint8Array);
      await call.put(got.reverse(), into);
      return { body: body.reverse(), regions };
    },
  });
  const security = { psk, ...(url.startsWith("shm") && { shm: "tls" as const }) };
  const server = await open({ listen: url, serve: [store], security: { ...security, ...there } });
  caller = await open({ security: { ...security, ...here } });
  const peer = await caller.connect(server.urls[0] as string);
  const memory = Uint8Array.from({ length: bytes }, (_, i) => i % 251);
  const result = new Uint8Array(bytes);
  using from = caller.expose(memory, { access: "read" });
  using into = caller.expose(result, { access: "write" });
  const answer = await peer.client(Store).swap({ from, into, body: memory });
  expect(Buffer.compare(result, Uint8Array.from(memory).reverse())).toBe(0);
  expect(Buffer.compare(answer.body, result)).toBe(0);
  return answer.regions;
}

const fabrics = [
  ["tcp", (): string => "tcp://127.0.0.1:0"],
  ["net", (): string => "net://127.0.0.1:0"],
  ["shm", (): string => `shm://sealed-bulk-${process.pid}-${Math.random().toString(36).slice(2)}`],
] as const;

describe.each(fabrics)("bulk of a sealed session over %s", (scheme, url) => {
  it("moves regions and long bodies, and registers no memory of a user", async () => {
    // The body of the request alone: ciphertext, until it has been pulled.
    expect(await swap({}, {}, url())).toBeLessThanOrEqual(1);
  });

  it("stays sealed where one side wants it so", async () => {
    expect(await swap({ bulk: "plain" }, {}, url())).toBeLessThanOrEqual(1);
    expect(await swap({}, { bulk: "plain" }, url())).toBeLessThanOrEqual(1);
  });

  it("moves pieces that stand in control requests, which have no limit of a body", async () => {
    const security: SecurityOptions = {
      psk: { identity: "pair", key: Buffer.alloc(32, 3) },
      ...(scheme === "shm" && { shm: "tls" as const }),
    };
    const limits = { maxBodyBytes: 1024 };
    const Mirror = service("mirror.v1", {
      turn: unary({ input: z.object({ from: bulk("read"), into: bulk("write") }), output: z.void() }),
    });
    const mirror = implement(Mirror, {
      async turn({ from, into }, call) {
        const got = await call.pull(from, Uint8Array);
        await call.put(got.reverse(), into);
      },
    });
    const server = await open({ listen: url(), serve: [mirror], security, limits });
    const client = await open({ security, limits });
    const memory = Uint8Array.from({ length: 8000 }, (_, i) => i % 251);
    const result = new Uint8Array(memory.length);
    using from = client.expose(memory, { access: "read" });
    using into = client.expose(result, { access: "write" });
    await (await client.connect(server.urls[0] as string)).client(Mirror).turn({ from, into });
    expect(Buffer.compare(result, memory.reverse())).toBe(0);
  });

  it("registers regions where both sides say that they travel as they are", async () => {
    expect(await swap({ bulk: "plain" }, { bulk: "plain" }, url())).toBeGreaterThanOrEqual(2);
  });
});
