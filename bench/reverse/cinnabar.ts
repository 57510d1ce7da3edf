import { type Client, Engine, implement, service, unary } from "cinnabar";
import { z } from "zod";
import { measureCallers } from "../contenders/client-party.ts";
import { smallObject } from "../contenders/payloads.ts";
import type { ReverseParty, Role } from "./party.ts";

const message = z.object({ id: z.int(), name: z.string(), text: z.string() });
const Echo = service("bench.echo.v1", { echo: unary({ input: message, output: message }) });
const echo = implement(Echo, { echo: (input) => input });

/** Both sides serve the same. The listener calls by the peer of the session, the connector by the peer it connected to. */
export async function open(role: Role, url: string): Promise<ReverseParty> {
  const engine = await Engine.open(role === "listener" ? { listen: url, serve: [echo] } : {});
  let client: Client<typeof Echo> | undefined;
  if (role === "connector")
    client = (await engine.connect(url, { serve: [echo] })).client(Echo, { timeoutMs: 10_000 });
  return {
    address: async () => engine.urls[0] ?? "",
    measure(inFlight, durationMs) {
      client ??= engine.peers()[0]?.client(Echo, { timeoutMs: 10_000 });
      const { echo } = client as Client<typeof Echo>;
      return measureCallers(() => echo(smallObject), inFlight, durationMs);
    },
    close: () => engine.close(),
  };
}
