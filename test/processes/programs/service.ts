// A service that ends by signals, as one under a supervisor does.
import { closeOnSignals, Engine } from "cinnabar";
import { obey, settings, tell } from "./commands.ts";
import { serveTrial, trialCommands } from "./serve-trial.ts";

const { listen, graceMs } = settings<{ readonly listen: string; readonly graceMs: number }>();
const engine: Engine = await Engine.open({ listen, serve: [serveTrial(() => "")] });
closeOnSignals(engine, {
  graceMs,
  onDrained({ aborted }) {
    tell("drained", { aborted: aborted.map(({ method, direction }) => `${direction} ${method}`) });
    // The channel to the test is all that keeps the process alive now, and its end must not choose the status.
    process.removeAllListeners("disconnect");
    process.disconnect();
  },
});
obey({ ...trialCommands, state: () => engine.state });
tell("listening", { urls: engine.urls });
