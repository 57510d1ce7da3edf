import { subscribe } from "node:diagnostics_channel";
import { NativePort } from "../../../src/fabric/native-port.ts";
import { NetPort } from "../../../src/fabric/net/net-port.ts";
import { Engine, type SecurityOptions } from "../../../src/index.ts";
import { engineCommands, obey, settings, tell } from "./commands.ts";

/* Dies by a signal at one step of the opening of a sealed session, and without any word. */

interface Settings {
  readonly listen?: string;
  readonly security: SecurityOptions;
  /**
   * `judged`: the peer's certificate holds. `opened`: both sides have greeted each other. Else by its own messages: right
   * before or after so many have been sent.
   */
  readonly dies: "judged" | "opened" | { readonly before: number } | { readonly after: number };
}

const { listen, security, dies } = settings<Settings>();
const die = (): undefined => {
  process.kill(process.pid, "SIGKILL");
};
if (dies === "opened") subscribe("cinnabar:session.opened", die);
if (typeof dies === "object") {
  // The package's own ports: nothing that a user can reach tells of single messages.
  let sent = 0;
  for (const { prototype } of [NativePort, NetPort]) {
    const { send } = prototype;
    prototype.send = function (this: never, ...message) {
      sent++;
      if ("before" in dies && sent === dies.before) die();
      send.apply(this, message);
      // A message over net leaves at the end of the turn.
      if ("after" in dies && sent === dies.after) process.nextTick(die);
    };
  }
}
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
