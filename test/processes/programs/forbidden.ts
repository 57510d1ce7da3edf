// Opens and connects over each kind of socket where Node forbids something, and tells what happened.
import { Engine, RpcError } from "cinnabar";
import { tell } from "./commands.ts";

process.on("uncaughtException", (error) => tell("uncaught", { message: String(error) }));
const { path } = JSON.parse(process.argv[2] as string) as { path: string };
const listening = ["net://127.0.0.1:0", "net://localhost:0", `net+unix://${path}`, "tcp://127.0.0.1:0"];
const connecting = ["net://127.0.0.1:1", "net://localhost:1", `net+unix://${path}`, "tcp://127.0.0.1:1"];
const outcome = async (how: string, act: () => Promise<unknown>): Promise<void> => {
  const error = await act().then(
    () => undefined,
    (reason: unknown) => reason,
  );
  if (error === undefined) tell("done", { how });
  else
    tell("refused", error instanceof RpcError ? { how, ...error.toJSON() } : { how, message: String(error) });
};
for (const url of listening)
  await outcome(`listen ${url}`, async () => (await Engine.open({ listen: url })).close());
await using engine = await Engine.open();
for (const url of connecting) await outcome(`connect ${url}`, () => engine.connect(url));
tell("told");
