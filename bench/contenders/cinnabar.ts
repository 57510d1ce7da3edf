import { bytes, Engine, implement, service, unary } from "cinnabar";
import { z } from "zod";
import { securityFor } from "../security/options.ts";
import type { Contender } from "./contender.ts";

const message = z.object({ id: z.int(), name: z.string(), text: z.string() });
const Echo = service("bench.echo.v1", {
  echo: unary({ input: message, output: message }),
  bytes: unary({ input: bytes(), output: bytes() }),
});

/** Cinnabar as users have it: both sides validate with zod, every call has a deadline. Sealed, both have certificates. */
export function cinnabar(listen: string, isSealed = false): Contender {
  const serve = async () => {
    const engine = await Engine.open({
      ...securityFor(isSealed),
      listen: [listen],
      serve: [implement(Echo, { echo: (input) => input, bytes: (input) => input })],
    });
    return { address: engine.urls[0] ?? "", close: () => engine.close() };
  };
  const connect = async (address: string) => {
    const engine = await Engine.open(securityFor(isSealed));
    const client = (await engine.connect(address)).client(Echo, { timeoutMs: 10_000 });
    return {
      echo: (input: z.infer<typeof message>) => client.echo(input),
      bytes: (input: Uint8Array) => client.bytes(input),
      close: () => engine.close(),
    };
  };
  if (!listen.startsWith("mem:")) return { serve, connect };
  return {
    async connect() {
      const serving = await serve();
      const connection = await connect(serving.address);
      return {
        ...connection,
        async close() {
          await connection.close();
          await serving.close();
        },
      };
    },
  };
}
