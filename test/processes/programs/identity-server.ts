import { Engine, implement, service, unary } from "cinnabar";
import { z } from "zod";
import { engineCommands, obey, settings, tell } from "./commands.ts";

/* Tells its callers what it knows of them, and asks others what they know of it. */

const Who = service("who.v1", { calls: unary({ input: z.null(), output: z.unknown() }) });

const engine = await Engine.open({
  ...settings<{ listen: string }>(),
  serve: [
    implement(Who, { calls: (_, call) => ({ identity: call.identity, confidential: call.isConfidential }) }),
  ],
});

obey({
  ...engineCommands(engine),
  async ask(url: string) {
    const peer = await engine.connect(url);
    return { identity: peer.identity, known: await peer.client(Who).calls(null) };
  },
});
tell("listening", { urls: engine.urls });
