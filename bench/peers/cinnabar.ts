import { Engine, implement, service, unary } from "cinnabar";
import { z } from "zod";
import type { Contender } from "../contender.ts";

const message = z.object({ id: z.int(), name: z.string(), text: z.string() });
const Echo = service("bench.echo.v1", { echo: unary({ input: message, output: message }) });

/** Cinnabar as users have it: both sides validate with zod, every call has a deadline. */
export function cinnabar(name: string, listen: () => string): Contender {
  return {
    name,
    async serve() {
      const engine = await Engine.open({
        listen: [listen()],
        serve: [implement(Echo, { echo: (input) => input })],
      });
      return { address: engine.urls[0] ?? "", close: () => engine.close() };
    },
    async connect(address) {
      const engine = await Engine.open();
      const client = (await engine.connect(address)).client(Echo, { timeoutMs: 10_000 });
      return { echo: (input) => client.echo(input), close: () => engine.close() };
    },
  };
}
