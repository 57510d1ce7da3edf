// A server that starts other programs, as servers do, and tells what they inherit.
import { spawn } from "node:child_process";
import { Engine, type EngineOptions } from "cinnabar";
import { engineCommands, obey, settings, tell } from "./commands.ts";
import { serveTrial, trialCommands } from "./serve-trial.ts";

const options = settings<Pick<EngineOptions, "listen" | "heartbeatMs">>();
const engine: Engine = await Engine.open({ ...options, serve: [serveTrial(() => "")] });

/** Descriptors of a child that lists its own, beyond the three it is given and the one it lists with. */
function inherited(): Promise<string[]> {
  return new Promise((resolve, reject) => {
    const child = spawn("ls", ["-l", "/proc/self/fd"], { stdio: ["ignore", "pipe", "ignore"] });
    let text = "";
    child.stdout.on("data", (chunk) => {
      text += chunk;
    });
    child.once("error", reject);
    child.once("close", () => {
      const links = [...text.matchAll(/ (\d+) -> (.*)$/gm)].map(
        ([, fd, target]) => [Number(fd), target] as const,
      );
      resolve(links.filter(([fd]) => fd > 3).map(([fd, target]) => `${fd} ${target}`));
    });
  });
}

obey({
  ...engineCommands(engine),
  ...trialCommands,
  async inheritances(count: number) {
    const all: string[][] = [];
    for (let i = 0; i < count; i++) all.push(await inherited());
    return all;
  },
  /** One that goes on when this process is killed. */
  leaveChild() {
    const child = spawn("sleep", ["60"], { detached: true, stdio: "ignore" });
    child.unref();
    return child.pid;
  },
});
tell("listening", { urls: engine.urls, life: "" });
