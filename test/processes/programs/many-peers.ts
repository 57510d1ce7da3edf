// One engine with several servers, most of which do not answer for a while.
import { Engine } from "cinnabar";
import { engineCommands, obey, settings, tell } from "./commands.ts";
import { Trial } from "./trial.ts";

const { urls, other } = settings<{ readonly urls: string[]; readonly other: string }>();
const patient = { timeoutMs: 100_000 };
const engine = await Engine.open({ heartbeatMs: 30_000 });
const trials = await Promise.all(urls.map(async (url) => (await engine.connect(url)).client(Trial, patient)));
const elsewhere = (await engine.connect(other)).client(Trial, patient);

obey({
  ...engineCommands(engine),
  pressAll({ count, load }: { count: number; load: number }) {
    const filler = "x".repeat(load);
    const calls = trials.flatMap((trial) =>
      Array.from({ length: count }, (_, number) => trial.note({ writer: "all", number, load: filler })),
    );
    void Promise.all(calls).then(() => tell("pressed"));
  },
  async elsewhere(count: number) {
    for (let i = 0; i < count; i++) await elsewhere.echo({ token: `${i}` });
  },
});
tell("connected");
