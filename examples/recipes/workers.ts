// Work that computes, in several threads behind one address.
// Run it with `node build/examples/recipes/workers.js [url]`.
import { Engine } from "cinnabar";
import { connectLanes, openLanes } from "cinnabar-lanes";
import { Primes } from "./workers/contract.ts";

const url = process.argv[2] ?? `shm://primes-${process.pid}`;
const host = await openLanes(new URL("./workers/primes.js", import.meta.url), { listen: url, lanes: 2 });
const engine = await Engine.open();
try {
  const peer = await connectLanes(engine, host.urls[0] ?? url);
  const primes = peer.client(Primes, { timeoutMs: 30_000 });
  const results = await Promise.all([10_000, 20_000, 30_000, 40_000].map((below) => primes.count({ below })));
  console.log(results.map((result) => result.primes).join(", "));
  console.log(`${new Set(results.map(({ lane }) => lane)).size} lanes have computed`);
} finally {
  await engine.close();
  await host.close();
}
