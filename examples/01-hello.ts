// A service, a server and a client. Run it with `node build/examples/01-hello.js [url]`.
import { Engine, implement, service, unary } from "cinnabar";
import { z } from "zod";

const Greeter = service("greeter.v1", {
  greet: unary({
    input: z.object({ name: z.string() }),
    output: z.object({ text: z.string() }),
    errors: { NameIsEmpty: z.object({ hint: z.string() }) },
    idempotent: true,
  }),
});

const url = process.argv[2] ?? `shm://hello-${process.pid}`;
await using server = await Engine.open({
  listen: [url],
  serve: [
    implement(Greeter, {
      greet({ name }, call) {
        if (name === "") return call.fail("NameIsEmpty", { hint: "everyone has a name" });
        return { text: `Hello, ${name}` };
      },
    }),
  ],
});

await using engine = await Engine.open();
const greeter = (await engine.connect(server.urls[0] ?? url)).client(Greeter, { timeoutMs: 2_000 });
console.log((await greeter.greet({ name: "world" })).text);

const result = await greeter.greet.result({ name: "" });
if (!result.ok && result.error.reason === "NameIsEmpty")
  console.log(`No greeting: ${result.error.data.hint}`);
