// Opens what it can where the addon or libfabric is not to be found, and tells what happened.
import { Engine, RpcError } from "cinnabar";
import { providers } from "cinnabar/inspect";
import { tell } from "./commands.ts";
import { serveTrial } from "./serve-trial.ts";
import { Trial } from "./trial.ts";

tell("imported");
// biome-ignore lint/correctness/noUnusedVariables: held until the program ends
await using server = await Engine.open({ listen: "mem://here", serve: [serveTrial(() => "mem")] });
await using engine = await Engine.open();
const trial = (await engine.connect("mem://here")).client(Trial);
tell("mem", await trial.echo({ token: "t" }));
for (const [how, open] of Object.entries({
  listen: () => Engine.open({ listen: "tcp://127.0.0.1:0" }),
  "listen over shm": () => Engine.open({ listen: "shm://nobody" }),
  connect: () => engine.connect("tcp://127.0.0.1:9"),
  "connect over shm": () => engine.connect("shm://nobody"),
})) {
  await open().then(
    () => tell("opened", { how }),
    (error: unknown) =>
      tell("refused", error instanceof RpcError ? { how, ...error.toJSON() } : { how, error }),
  );
}
// The failures have left the engine as it was.
tell("mem again", await trial.echo({ token: "u" }));
tell("providers", providers());
