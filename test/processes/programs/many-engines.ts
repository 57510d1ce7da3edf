import { Engine } from "cinnabar";
import { engineCommands, obey, settings, tell } from "./commands.ts";
import { serveTrial } from "./serve-trial.ts";
import { Trial } from "./trial.ts";

/* Many engines in one process: each serves, and calls the next. */

const { urls } = settings<{ urls: string[] }>();
const engines: Engine[] = [];
for (const url of urls) engines.push(await Engine.open({ listen: [url], serve: [serveTrial(() => "")] }));
const [first] = engines as [Engine];

const trials = await Promise.all(
  engines.map(async (engine, i) => {
    const [url] = (engines[i + 1] ?? first).urls as [string];
    return (await engine.connect(url)).client(Trial, { timeoutMs: 20_000 });
  }),
);

obey({
  ...engineCommands(first),
  /** How many of them answer a call of all at once. */
  round: async () => (await Promise.all(trials.map((trial) => trial.echo({ token: "now" })))).length,
});
tell("connected");
