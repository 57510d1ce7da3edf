// Serves at the addresses that it is given until its input ends. For an installed package.
import { Engine, implement, service, unary } from "cinnabar";
import { z } from "zod";

const Greeter = service("greeter.v1", {
  greet: unary({ input: z.object({ name: z.string() }), output: z.string() }),
});
const greet = implement(Greeter, { greet: ({ name }) => `Hello, ${name}, from process ${process.pid}` });
/** Generous: emulated processors and devices stand still for seconds, and what is tested is the package. */
const patience = { heartbeatMs: 20_000, connectTimeoutMs: 60_000 };
const engine = await Engine.open({ ...patience, listen: process.argv.slice(2), serve: [greet] });
console.log(JSON.stringify(engine.urls));
process.stdin.resume();
process.stdin.on("end", () => engine.close());
