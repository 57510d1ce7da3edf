// A call and a transfer of 16 MiB each way over every fabric, in one process. For an installed package.
import { bulk, Engine, implement, service, unary } from "cinnabar";
import { z } from "zod";

const bytes = 16 << 20;
const Blocks = service("blocks.v1", {
  greet: unary({ input: z.object({ name: z.string() }), output: z.string() }),
  double: unary({ input: z.object({ from: bulk("read"), to: bulk("write") }), output: z.int() }),
});
const blocks = implement(Blocks, {
  greet: ({ name }) => `Hello, ${name}`,
  async double({ from, to }, call) {
    const memory = new Uint8Array(from.byteLength);
    await call.get(from, memory);
    return call.put(
      memory.map((value) => value * 2),
      to,
    );
  },
});

/** Generous: emulated processors and devices stand still for seconds, and what is tested is the package. */
const patience = { heartbeatMs: 20_000, connectTimeoutMs: 60_000 };

for (const listen of process.argv.slice(2)) {
  const server = await Engine.open({ ...patience, listen, serve: [blocks] });
  const engine = await Engine.open(patience);
  const client = (await engine.connect(server.urls[0] ?? "")).client(Blocks, { timeoutMs: 300_000 });
  const [scheme] = listen.split(":");
  console.log(`${scheme}: ${await client.greet({ name: scheme ?? "" })}`);
  const to = new Uint8Array(bytes);
  const from = Uint8Array.from({ length: bytes }, (_, at) => at % 100);
  const source = engine.expose(from, { access: "read" });
  const target = engine.expose(to, { access: "write" });
  const moved = await client.double({ from: source, to: target });
  const isWhole = moved === bytes && to.every((value, at) => value === (at % 100) * 2);
  console.log(`${scheme}: ${isWhole ? bytes : "wrong"} bytes there and back`);
  source.dispose();
  target.dispose();
  await engine.close();
  await server.close();
}
