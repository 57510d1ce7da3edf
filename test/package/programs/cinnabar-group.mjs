// For the installed package cinnabar-group: a member of a group calls another one by its rank and has a variable, and a
// failure detector hears that another one leaves.
import assert from "node:assert/strict";
import { bytes, Engine, implement, service, unary } from "cinnabar/standard";
import { FailureDetector, joinGroup, staticAuthority } from "cinnabar-group";
import { implementVariables } from "cinnabar-group/variables";

const Counter = service("counter.v1", { count: unary() });
/** @type {number[]} */
const counted = [];
const open = (/** @type {number} */ rank) => {
  const counter = implement(Counter, { count: () => void counted.push(rank) });
  return Engine.open({ listen: `mem://rank-${rank}`, serve: [counter] });
};
const [engine, other] = [await open(0), await open(1)];
const authority = staticAuthority([{ urls: engine.urls }, { urls: other.urls }]);
const group = await joinGroup("counters", { engine, authority });
await group.at(1).client(Counter).count();
assert.deepEqual(counted, [1]);
await group.close();

const variables = implementVariables();
const alone = staticAuthority([{ urls: engine.urls }]);
const single = await joinGroup("single", { engine, authority: alone, serve: [variables] });
const limit = variables.variable(single, "limit", { schema: bytes() });
const version = await limit.set(Uint8Array.of(7));
assert.deepEqual(await limit.get(), { version, value: Uint8Array.of(7) });
await single.close();
await engine.close();
await other.close();

// A loopback address of this process, so that nobody else has these ports.
const host = `127.${[16, 8, 0].map((bits) => (process.pid >> bits) & 0xff || 1).join(".")}`;
const members = [0, 1].map((id) => ({ id, address: `${host}:${7946 + id}` }));
/** @type {(member: number) => void} */
let hear = () => {};
const heard = new Promise((resolve) => (hear = resolve));
const detector = await FailureDetector.open({
  ...{ group: "detectors", self: 0, members },
  onEvent: (event) => event.type === "status" && event.status === "left" && hear(event.member),
});
const leaver = await FailureDetector.open({ group: "detectors", self: 1, members });
await leaver.leave();
// A detector does not keep the process alive.
const alive = setInterval(() => {}, 60_000);
assert.equal(await heard, 1);
clearInterval(alive);
await detector.close();
console.log("cinnabar-group works");
