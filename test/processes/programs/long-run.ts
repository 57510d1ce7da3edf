// Many calls, and many given up, in one process for both sides or two; what they leave behind is measured by the test.
import { Engine } from "cinnabar";
import { engineCommands, obey, settings, tell } from "./commands.ts";
import { Trial } from "./trial.ts";

const { url } = settings<{ readonly url: string }>();
const engine = await Engine.open();
const trial = (await engine.connect(url)).client(Trial, { timeoutMs: 60_000 });

obey({
  ...engineCommands(engine),
  async calls(count: number) {
    for (let i = 0; i < count; i++) await trial.nothing();
  },
  /** Gives calls up in each phase: before they leave, on their way, with the handler. */
  async abandon(count: number) {
    let cancelled = 0;
    for (let i = 0; i < count; i++) {
      const controller = new AbortController();
      const call = i % 2 === 0 ? trial.linger(undefined, controller) : trial.echo({ token: "t" }, controller);
      if (i % 4 < 2) controller.abort();
      else setImmediate(() => controller.abort());
      const code = await call.then(
        () => "answered",
        (error) => error.code,
      );
      if (code === "cancelled") cancelled++;
      else if (code !== "answered") throw new Error(`call ${i} ended with ${code}`);
    }
    return cancelled;
  },
});
tell("connected");
