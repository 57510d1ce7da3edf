// What a bundle says that has neither the addon nor the file of lanes beside it.
import { Engine, implement, service, unary } from "cinnabar";
import { openLanes } from "cinnabar-lanes";
import { z } from "zod";

const Hello = service("hello.v1", { hello: unary({ output: z.string() }) });

async function main() {
  const server = await Engine.open({
    listen: "mem://hello",
    serve: [implement(Hello, { hello: () => "hello" })],
  });
  const engine = await Engine.open();
  console.log(await (await engine.connect("mem://hello")).client(Hello).hello());
  await engine.close();
  await server.close();
  /** @param {Error} error */
  const message = (error) => console.log(error.message);
  await Engine.open({ listen: "tcp://127.0.0.1:0" }).catch(message);
  await openLanes("file:///service.js", { listen: "tcp://127.0.0.1:0", lanes: 1 }).catch(message);
}

main();
