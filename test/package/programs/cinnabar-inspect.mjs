// For the installed package cinnabar-inspect: an engine that tells what it serves and what it does.
import assert from "node:assert/strict";
import { Engine, implement, service, unary } from "cinnabar/standard";
import { describeService, Inspection, inspection, Reflection, reflection } from "cinnabar-inspect";

const Hello = service("hello.v1", { hello: unary() });
const hello = implement(Hello, { hello() {} });
const server = await Engine.open({
  listen: "mem://hello",
  serve: (engine) => [hello, reflection(engine), inspection(engine)],
});
const engine = await Engine.open();
const peer = await engine.connect("mem://hello");
await peer.client(Hello).hello();
const [listed] = await peer.client(Reflection).list();
assert.equal(listed?.service, "hello.v1");
assert.deepEqual(await peer.client(Reflection).describe({ service: "hello.v1" }), describeService(Hello));
const { methods } = await peer.client(Inspection).snapshot();
assert.deepEqual(
  methods.map(({ method, succeeded }) => [method, succeeded]),
  [["hello.v1/hello", 1]],
);
await engine.close();
await server.close();
console.log("cinnabar-inspect works");
