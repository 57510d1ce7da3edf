import { Engine } from "cinnabar";
import { LateWriter } from "../../bulk/support/late-writer.ts";
import { engineCommands, obey, settings, tell } from "./commands.ts";

interface LateSettings {
  readonly listen: string;
  /** Where the caller is. */
  readonly url: string;
  readonly bytes: number;
}

const { listen, url, bytes } = settings<LateSettings>();

// A port without an engine is nothing a user can reach; the package's own files find the addon.
const own = (file: string) => import(new URL(`../../../../dist/fabric/${file}.js`, import.meta.url).href);
const { openConnectingPort }: typeof import("../../../src/fabric/open-port.ts") = await own("open-port");
const { locate }: typeof import("../../../src/fabric/target.ts") = await own("target");
const { defaultLayout }: typeof import("../../../src/fabric/port.ts") = await own("port");

const target = await locate(url);
const raw = await openConnectingPort(target, defaultLayout);
const writer = new LateWriter(raw, raw.admit(raw.route(target).address), bytes);
const engine = await Engine.open({ listen, serve: [writer.implementation], onHandlerError: () => {} });

obey({
  ...engineCommands(engine),
  race: () => writer.race(),
  late: () => writer.late(),
});
tell("listening", { urls: engine.urls });
