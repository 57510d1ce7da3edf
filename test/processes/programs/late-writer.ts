import { Engine } from "cinnabar";
import { openConnectingPort } from "../../../src/fabric/open-port.ts";
import { defaultLayout } from "../../../src/fabric/port.ts";
import { locate } from "../../../src/fabric/target.ts";
import { LateWriter } from "../../bulk/support/late-writer.ts";
import { engineCommands, obey, settings, tell } from "./commands.ts";

interface LateSettings {
  readonly listen: string;
  /** Where the caller is. */
  readonly url: string;
  readonly bytes: number;
}

const { listen, url, bytes } = settings<LateSettings>();

// A port without an engine is nothing that a user can reach.
const target = await locate(url);
const raw = await openConnectingPort(target, defaultLayout);
const writer = new LateWriter(raw, raw.admit((await raw.route(target)).address), bytes);
const engine = await Engine.open({ listen, serve: [writer.implementation], onHandlerError: () => {} });

obey({
  ...engineCommands(engine),
  race: () => writer.race(),
  late: () => writer.late(),
});
tell("listening", { urls: engine.urls });
