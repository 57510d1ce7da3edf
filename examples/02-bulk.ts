// The server writes a million numbers into the memory of the client. The message only describes that memory.
// Run it with `node build/examples/02-bulk.js [url]`.
import { bulk, Engine, implement, service, unary } from "cinnabar";
import { z } from "zod";

const Squares = service("squares.v1", {
  fill: unary({
    input: z.object({ from: z.int(), into: bulk("write") }),
    output: z.object({ count: z.int() }),
  }),
});

const url = process.argv[2] ?? `shm://squares-${process.pid}`;
await using server = await Engine.open({
  listen: [url],
  serve: [
    implement(Squares, {
      async fill({ from, into }, call) {
        const squares = Float64Array.from({ length: into.byteLength / 8 }, (_, index) => (from + index) ** 2);
        await call.put(new Uint8Array(squares.buffer), into);
        return { count: squares.length };
      },
    }),
  ],
});

await using engine = await Engine.open();
const squares = (await engine.connect(server.urls[0] ?? url)).client(Squares, { timeoutMs: 5_000 });
const numbers = new Float64Array(1_000_000);
using region = engine.expose(new Uint8Array(numbers.buffer), { access: "write" });
const { count } = await squares.fill({ from: 1, into: region });
console.log(`${count} squares, the last is ${numbers.at(-1)}`);
