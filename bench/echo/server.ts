import { Engine, implement } from "cinnabar";
import { Echo } from "./contract.ts";
import { type Usage, usage } from "./usage.ts";

export interface EchoServer extends Usage {
  url(): Promise<string>;
  sessions(): Promise<number>;
}

const maxSessions = 20_000;

/** A server in full dress: what comes and what goes is checked by zod. */
export async function open(listen: string): Promise<EchoServer> {
  const engine = await Engine.open({
    listen,
    serve: [implement(Echo, { echo: (input) => input })],
    limits: { maxSessions },
  });
  return {
    ...usage,
    url: async () => engine.urls[0] ?? "",
    sessions: async () => engine.stats().sessions,
    close: () => engine.close(),
  };
}
