// Serves at the addresses that it is given until its input ends. For an installed package.
import { Engine, implement, service, unary } from "cinnabar";
import { z } from "zod";

const Greeter = service("greeter.v1", {
  greet: unary({ input: z.object({ name: z.string() }), output: z.string() }),
});
const greet = implement(Greeter, { greet: ({ name }) => `Hello, ${name}, from process ${process.pid}` });
const engine = await Engine.open({ listen: process.argv.slice(2), serve: [greet] });
console.log(JSON.stringify(engine.urls));
process.stdin.resume();
process.stdin.on("end", () => engine.close());
