// Calls, streams, bulk data, a handle and an error of the contract over each URL that is named, on any runtime. Prints
// what came of it.
import {
  bulk,
  clientStream,
  duplexStream,
  Engine,
  handle,
  implement,
  isError,
  serverStream,
  service,
  unary,
} from "cinnabar";
import { z } from "zod";

const Everything = service("everything.v1", {
  hello: unary({ input: z.object({ name: z.string() }), output: z.string(), errors: { NoName: z.string() } }),
  count: serverStream({ input: z.int(), output: z.int() }),
  sum: clientStream({ items: z.int(), output: z.int() }),
  double: duplexStream({ items: z.int(), output: z.int() }),
  turn: unary({ input: z.object({ from: bulk("read"), into: bulk("write") }) }),
  page: unary({ output: handle("read") }),
});

/** Patient: what is tested is the package, on machines that do much else. */
const patience = { heartbeatMs: 20_000, connectTimeoutMs: 60_000 };

/** @param {string} url */
async function callOver(url) {
  const everything = implement(Everything, {
    hello: ({ name }, call) => (name === "" ? call.fail("NoName", "give one") : `Hello, ${name}`),
    async *count(to) {
      for (let i = 1; i <= to; i++) yield i;
    },
    async sum(items) {
      let sum = 0;
      for await (const item of items) sum += item;
      return sum;
    },
    async *double(items) {
      for await (const item of items) yield 2 * item;
    },
    async turn({ from, into }, call) {
      const bytes = await call.pull(from, Uint8Array);
      await call.put(bytes.reverse(), into);
    },
    page: () => page.share(),
  });
  const server = await Engine.open({ ...patience, listen: url, serve: [everything] });
  const page = server.expose(Uint8Array.of(5), { access: "read" });
  const engine = await Engine.open(patience);
  const peer = await engine.connect(/** @type {string} */ (server.urls[0]));
  const client = peer.client(Everything, { timeoutMs: 60_000 });

  let counted = 0;
  for await (const each of client.count(1000)) counted += each;
  const double = client.double.open();
  await double.send(21);
  const { value: doubled } = await double.next();
  await double.end();

  const memory = Uint8Array.from({ length: 3_000_001 }, (_, i) => i % 251);
  const turned = new Uint8Array(memory.length);
  const from = engine.expose(memory, { access: "read" });
  const into = engine.expose(turned, { access: "write" });
  await client.turn({ from, into });
  const isRight = turned.reverse().every((byte, i) => byte === memory[i]);
  from.dispose();
  into.dispose();

  const borrowed = await engine.borrow(await client.page());
  const [read] = await borrowed.pull(Uint8Array);
  await borrowed[Symbol.asyncDispose]();
  const error = await client.hello({ name: "" }).catch((reason) => reason);

  const results = [
    await client.hello({ name: url.slice(0, url.indexOf(":")) }),
    ...[counted, await client.sum([1, 2, 3]), doubled],
    ...[isRight ? memory.length : "wrong bytes", read],
    isError(error, Everything, "hello", "NoName") ? error.data : error,
  ];
  await engine.close();
  await server.close();
  return results.join(" ");
}

for (const url of process.argv.slice(2))
  console.log(await callOver(url).catch(({ code, message }) => `${code}: ${message}`));
