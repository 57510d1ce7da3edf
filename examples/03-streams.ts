// The client sends lines to the server and gets them back in capitals. Neither side holds all of the data.
// Run it with `node build/examples/03-streams.js [url]`.
import { Engine, implement, service, unary } from "cinnabar";
import { BulkStream, bulkStream, readable, writable } from "cinnabar-bulk";
import { z } from "zod";

const Text = service("text.v1", {
  shout: unary({
    input: z.object({ from: bulkStream("read"), into: bulkStream("write") }),
    output: z.object({ bytes: z.int() }),
  }),
});

const url = process.argv[2] ?? `shm://text-${process.pid}`;
await using server = await Engine.open({
  listen: [url],
  serve: [
    implement(Text, {
      async shout({ from, into }, call) {
        const out = writable(call, into).getWriter();
        let bytes = 0;
        for await (const piece of readable(call, from)) {
          await out.write(Buffer.from(Buffer.from(piece).toString("latin1").toUpperCase(), "latin1"));
          bytes += piece.byteLength;
        }
        await out.close();
        return { bytes };
      },
    }),
  ],
});

await using engine = await Engine.open();
const text = (await engine.connect(server.urls[0] ?? url)).client(Text, { timeoutMs: 30_000 });
const from = new BulkStream(engine, "read");
const into = new BulkStream(engine, "write");
const answer = text.shout({ from, into });

const line = new TextEncoder().encode("in xanadu did kubla khan\n");
const writing = (async () => {
  const writer = from.writable.getWriter();
  for (let i = 0; i < 100_000; i++) await writer.write(line);
  await writer.close();
})();

let last = "";
for await (const piece of into.readable)
  last = (last + Buffer.from(piece).toString("latin1")).slice(-line.length);
await writing;
console.log(`${(await answer).bytes} bytes, the last line is ${last.trim()}`);
