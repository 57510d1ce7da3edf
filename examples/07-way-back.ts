// The way back: workers connect to a farm, which calls them. No worker listens anywhere.
// Run it with `node build/examples/07-way-back.js [url]`.
import { Engine, implement, type SessionPeer, service, unary } from "cinnabar";
import { z } from "zod";

const Worker = service("worker.v1", {
  render: unary({ input: z.object({ frame: z.int() }), output: z.string() }),
});
const Farm = service("farm.v1", { join: unary({ input: z.object({ name: z.string() }) }) });

const workers = new Map<string, SessionPeer>();
const url = process.argv[2] ?? `shm://farm-${process.pid}`;
await using farm = await Engine.open({
  listen: url,
  serve: [implement(Farm, { join: ({ name }, { caller }) => void workers.set(name, caller) })],
});
// A worker that is gone gets no more work. One that comes back joins again.
farm.on("sessionEnded", ({ peer }) => {
  for (const [name, worker] of workers) if (worker === peer) workers.delete(name);
});

async function startWorker(name: string): Promise<Engine> {
  const engine = await Engine.open();
  const worker = implement(Worker, { render: ({ frame }) => `frame ${frame} by ${name}` });
  // The services for the farm alone.
  const peer = await engine.connect(farm.urls[0] as string, { serve: [worker] });
  await peer.client(Farm).join({ name });
  return engine;
}

const started = [await startWorker("Ada"), await startWorker("Bob")];
let frame = 0;
for (const worker of workers.values())
  console.log(await worker.client(Worker, { timeoutMs: 2_000 }).render({ frame: ++frame }));

const left = new Promise((resolve) => farm.on("sessionEnded", resolve));
await started[0]?.close();
await left;
console.log([...workers.keys()].join(), "is left");
await started[1]?.close();
