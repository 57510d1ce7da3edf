// Opens what it can where the addon or libfabric is not to be found, and tells what happened.
import { randomBytes } from "node:crypto";
import { Engine, RpcError } from "cinnabar";
import { providers } from "cinnabar/inspect";
import { tell } from "./commands.ts";
import { serveTrial } from "./serve-trial.ts";
import { Trial } from "./trial.ts";

tell("imported");
await using server = await Engine.open({
  listen: ["mem://here", "net://127.0.0.1:0"],
  serve: [serveTrial(() => "mem")],
});
await using engine = await Engine.open();
const trial = (await engine.connect("mem://here")).client(Trial);
tell("mem", await trial.echo({ token: "t" }));
const overNet = (await engine.connect(server.urls[1] as string)).client(Trial);
tell("net", await overNet.echo({ token: "n" }));
const security = { psk: { identity: "pair", key: randomBytes(32) } };
await using sealedServer = await Engine.open({
  listen: "net://127.0.0.1:0",
  serve: [serveTrial(() => "net")],
  security,
});
await using sealedEngine = await Engine.open({ security });
const sealed = await sealedEngine.connect(sealedServer.urls[0] as string);
tell("sealed", {
  isConfidential: sealed.isConfidential,
  ...(await sealed.client(Trial).echo({ token: "x" })),
});
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
