// Stops its server, sends more than leaves, gives it all up, and has nothing more to do.
import { Engine, type RpcError } from "cinnabar";
import { settings, tell } from "./commands.ts";
import { Trial } from "./trial.ts";

const { url, server, heartbeatMs } = settings<{
  readonly url: string;
  readonly server: number;
  readonly heartbeatMs: number;
}>();
const engine = await Engine.open({ heartbeatMs });
const trial = (await engine.connect(url)).client(Trial, { timeoutMs: 60_000 });
await trial.nothing();
process.kill(server, "SIGSTOP");
const controller = new AbortController();
const calls = Array.from({ length: 1500 }, (_, number) =>
  trial
    .note({ writer: "quitter", number, load: "x".repeat(5_000) }, controller)
    .catch((error: RpcError) => error.code),
);
// Until what can leave has left.
for (let turn = 0; turn < 50; turn++) await new Promise(setImmediate);
const { sends } = engine.stats().ports[0] ?? {};
controller.abort();
tell("gave up", { sends, codes: [...new Set(await Promise.all(calls))] });
