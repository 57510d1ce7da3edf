import { Engine, type EngineOptions } from "cinnabar";
import { engineCommands, obey, settings, tell } from "./commands.ts";
import { serveTrial, trialCommands } from "./serve-trial.ts";

const options = settings<Pick<EngineOptions, "listen" | "heartbeatMs" | "maxStallMs" | "limits">>();
const life = () => engine.incarnation.toString(16);
const engine: Engine = await Engine.open({ ...options, serve: [serveTrial(life)] });

obey({
  ...engineCommands(engine),
  ...trialCommands,
});
tell("listening", { urls: engine.urls, life: life() });
