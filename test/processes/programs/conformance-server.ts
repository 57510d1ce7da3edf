// Serves the test service of the conformance suite.
import { Engine, type EngineOptions } from "cinnabar";
import { testServer } from "../../conformance/service.ts";
import { securedOptions } from "../../matrix/secured.ts";
import { engineCommands, obey, settings, tell } from "./commands.ts";

const engine = await Engine.open({
  ...securedOptions,
  ...settings<Pick<EngineOptions, "listen" | "heartbeatMs">>(),
  serve: [testServer()],
});

obey(engineCommands(engine));
tell("listening", { urls: engine.urls });
