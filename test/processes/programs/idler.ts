// Connects with a keepalive, lets pings pass for a while, and has nothing more to do.
import { Engine } from "cinnabar";
import { settings, tell } from "./commands.ts";

const { url } = settings<{ readonly url: string }>();
const engine = await Engine.open({ keepaliveMs: 100 });
await engine.connect(url);
const until = engine.stats().counters.messagesReceived + 5;
// Holds the process for as long as the test needs it, and no longer.
await new Promise<void>((resolve) => {
  const timer = setInterval(() => {
    if (engine.stats().counters.messagesReceived < until) return;
    clearInterval(timer);
    resolve();
  }, 10);
});
tell("pinged", {});
