import { subscribe } from "node:diagnostics_channel";
import { Engine, type SecurityOptions } from "cinnabar";
import { engineCommands, obey, settings, tell } from "./commands.ts";

/* Dies by a signal at one step of the opening of a sealed session, and without any word. */

interface Settings {
  readonly listen?: string;
  readonly security: SecurityOptions;
  /** `judged`: the peer's certificate holds. `opened`: both sides have greeted each other. */
  readonly dies: "judged" | "opened" | "never";
}

const { listen, security, dies } = settings<Settings>();
const die = (): undefined => {
  process.kill(process.pid, "SIGKILL");
};
if (dies === "opened") subscribe("cinnabar:session.opened", die);
const engine = await Engine.open({
  ...(listen === undefined ? {} : { listen }),
  security: { ...security, identify: ({ dnsNames }) => (dies === "judged" ? die() : dnsNames[0]) },
});

obey({
  ...engineCommands(engine),
  async reach(url: string) {
    return (await engine.connect(url, { name: "server.example" })).state;
  },
});
tell("listening", { urls: engine.urls });
