// Calls over mem:// and tcp://, a region, a handle, and lanes where a module for them is named. Prints what came of it.
// No `await` outside of functions, so that bundlers can make CommonJS of it.
import { pathToFileURL } from "node:url";
import { bulk, Engine, handle, implement, service, unary } from "cinnabar";
import { connectLanes, openLanes } from "cinnabar-lanes";
import { z } from "zod";

const Hello = service("hello.v1", {
  hello: unary({ input: z.object({ name: z.string() }), output: z.string() }),
  fill: unary({ input: z.object({ into: bulk("write") }), output: z.int() }),
  page: unary({ output: handle("read") }),
});

/** A machine that runs compilers beside this starts a thread in many seconds. */
const startTimeoutMs = 60_000;

/** @param {string} url */
async function callOver(url) {
  /** @type {Engine} */
  const server = await Engine.open({
    listen: url,
    serve: [
      implement(Hello, {
        hello: ({ name }) => `Hello, ${name}`,
        fill: ({ into }, call) => call.put(new Uint8Array(into.byteLength).fill(7), into),
        page: () => page.share(),
      }),
    ],
  });
  const page = server.expose(Uint8Array.of(5), { access: "read" });
  const engine = await Engine.open();
  const client = (await engine.connect(/** @type {string} */ (server.urls[0]))).client(Hello, {
    timeoutMs: startTimeoutMs,
  });
  const memory = new Uint8Array(1 << 20);
  const region = engine.expose(memory, { access: "write" });
  // Memory of the addon, which newer releases of Node detach when the process ends.
  const taken = engine.pool.take(1 << 20);
  const borrowed = await engine.borrow(await client.page());
  const results = [
    await client.hello({ name: url.slice(0, 3) }),
    await client.fill({ into: region }),
    memory.at(-1),
    (await borrowed.pull(Uint8Array))[0],
  ];
  await borrowed[Symbol.asyncDispose]();
  taken.dispose();
  await engine.close();
  await server.close();
  return results.join(" ");
}

/** @param {string} module */
async function callLane(module) {
  const lanes = await openLanes(pathToFileURL(module), {
    listen: "tcp://127.0.0.1:0",
    lanes: 1,
    startTimeoutMs,
  });
  const engine = await Engine.open();
  const peer = await connectLanes(engine, /** @type {string} */ (lanes.urls[0]));
  const answer = await peer.client(Hello, { timeoutMs: startTimeoutMs }).hello({ name: "lane" });
  await engine.close();
  await lanes.close();
  return answer;
}

async function main() {
  for (const url of ["mem://hello", "tcp://127.0.0.1:0"]) console.log(await callOver(url));
  const [, , module] = process.argv;
  if (module !== undefined) console.log(await callLane(module).catch(({ message }) => message));
}

main();
