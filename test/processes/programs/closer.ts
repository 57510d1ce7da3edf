// A server that closes its engine inside a handler, while other calls are taken from the same batch of messages.
import { Engine } from "cinnabar";
import { settings, tell } from "./commands.ts";
import { serveTrial } from "./serve-trial.ts";

const { listen } = settings<{ readonly listen: string }>();
const engine: Engine = await Engine.open({ listen, serve: [serveTrial(() => "", close)] });
tell("listening", { urls: engine.urls });

function close(): void {
  engine.close().then(() => {
    const { ports, calls, sessions, deadlines } = engine.stats();
    tell("closed", { ports: ports.length, calls, sessions, deadlines });
    process.disconnect();
  });
}
