import { Engine } from "cinnabar";
import { exact } from "../../matrix/exact-limits.ts";
import { engineCommands, obey, type ServerSettings, settings, tell } from "./commands.ts";
import { serveTrial, trialCommands } from "./serve-trial.ts";

const { limits = {}, ...options } = settings<ServerSettings>();
const life = () => engine.incarnation.toString(16);
const engine: Engine = await Engine.open({ ...options, limits: exact(limits), serve: [serveTrial(life)] });

obey({
  ...engineCommands(engine),
  ...trialCommands,
});
tell("listening", { urls: engine.urls, life: life() });
