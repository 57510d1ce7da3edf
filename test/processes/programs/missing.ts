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
const name = `shm://missing-${process.pid}`;
const opened: Engine[] = [];
for (const [how, open] of Object.entries({
  "listen over tcp": () => Engine.open({ listen: "tcp://127.0.0.1:0" }),
  "connect over tcp": () => engine.connect("tcp://127.0.0.1:9"),
  "listen over shm": () => Engine.open({ listen: name, serve: [serveTrial(() => "shm")] }),
  "connect over shm": async () => (await engine.connect(name)).client(Trial).echo({ token: "s" }),
})) {
  await open().then(
    (result) => {
      if (result instanceof Engine) opened.push(result);
      tell("opened", { how });
    },
    (error: unknown) =>
      tell("refused", error instanceof RpcError ? { how, ...error.toJSON() } : { how, error }),
  );
}
// The failures have left the engine as it was.
tell("mem again", await trial.echo({ token: "u" }));
tell("providers", providers());
for (const each of opened) await each.close();
