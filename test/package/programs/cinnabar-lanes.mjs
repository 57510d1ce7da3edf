// For the installed package cinnabar-lanes: two lanes serve a client together.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { bytes, Engine, service, unary } from "cinnabar/standard";
import { connectLanes, openLanes } from "cinnabar-lanes";

const module = new URL("./lane-module.mjs", import.meta.url);
writeFileSync(
  module,
  `import { implement, service, unary, bytes } from "cinnabar/standard";
const Where = service("where.v1", { lane: unary({ output: bytes() }) });
export default ({ lane }) => implement(Where, { lane: () => new Uint8Array([lane]) });
`,
);
const Where = service("where.v1", { lane: unary({ output: bytes() }) });
const host = await openLanes(module, { listen: "net://127.0.0.1:0", lanes: 2, dispatcher: "refer" });
const engine = await Engine.open();
const peer = await connectLanes(engine, host.urls[0] ?? "", { policy: "roundRobin" });
const where = peer.client(Where);
const lanes = await Promise.all(Array.from({ length: 4 }, () => where.lane()));
assert.deepEqual(lanes.map(([lane]) => lane).sort(), [0, 0, 1, 1]);
assert.deepEqual([...(await peer.client(Where, { lane: 1 }).lane())], [1]);
await engine.close();
await host.close();
console.log("cinnabar-lanes works");
