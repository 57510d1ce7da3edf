import { Engine, type EngineOptions } from "cinnabar";
import { engineCommands, obey, settings, tell } from "./commands.ts";
import { serveTrial, trialCommands } from "./serve-trial.ts";

const options = settings<Pick<EngineOptions, "listen" | "heartbeatMs" | "limits">>();
const life = () => engine.incarnation.toString(16);
const engine: Engine = await Engine.open({ ...options, serve: [serveTrial(life)] });

obey({
  ...engineCommands(engine),
  ...trialCommands,
  /** Nothing runs on this thread for a while; told before, so that the test can act meanwhile. */
  block(ms: number) {
    setImmediate(() => {
      tell("blocking");
      for (const until = performance.now() + ms; performance.now() < until; );
      tell("unblocked");
    });
  },
});
tell("listening", { urls: engine.urls, life: life() });
