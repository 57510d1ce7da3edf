// For the installed package cinnabar-bulk: a handler writes in capitals what it reads.
import assert from "node:assert/strict";
import { Engine, fields, implement, service, unary } from "cinnabar/standard";
import { BulkStream, bulkStream, readable, writable } from "cinnabar-bulk/standard";

const Text = service("text.v1", {
  shout: unary({ input: fields({ from: bulkStream("read"), into: bulkStream("write") }) }),
});
const text = implement(Text, {
  async shout({ from, into }, call) {
    const out = writable(call, into).getWriter();
    for await (const piece of readable(call, from))
      await out.write(new TextEncoder().encode(new TextDecoder().decode(piece).toUpperCase()));
    await out.close();
  },
});
const url = "mem://bulk";
const server = await Engine.open({ listen: url, serve: [text] });
const engine = await Engine.open();
const from = new BulkStream(engine, "read");
const into = new BulkStream(engine, "write");
const answer = (await engine.connect(url)).client(Text).shout({ from, into });
const sent = new Blob(["in xanadu"]).stream().pipeTo(from.writable);
assert.equal(await new Response(into.readable).text(), "IN XANADU");
await Promise.all([sent, answer]);
await engine.close();
await server.close();
console.log("cinnabar-bulk works");
