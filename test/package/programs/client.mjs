// Calls the server at each address that it is given. For an installed package.
import { Engine, service, unary } from "cinnabar";
import { z } from "zod";

const Greeter = service("greeter.v1", {
  greet: unary({ input: z.object({ name: z.string() }), output: z.string() }),
});
/** Generous: emulated processors and devices stand still for seconds, and what is tested is the package. */
const patience = { heartbeatMs: 20_000, connectTimeoutMs: 60_000 };
const engine = await Engine.open(patience);
for (const url of process.argv.slice(2)) {
  const greeter = (await engine.connect(url)).client(Greeter, { timeoutMs: 60_000 });
  console.log(`${url}: ${await greeter.greet({ name: `process ${process.pid}` })}`);
}
await engine.close();
