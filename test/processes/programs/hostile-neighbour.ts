import { spawnSync } from "node:child_process";
import { closeSync, openSync, readdirSync, readFileSync, writeSync } from "node:fs";
import { Engine } from "cinnabar";
import { engineCommands, obey, settings, tell } from "./commands.ts";
import { Trial } from "./trial.ts";

/* A peer over shm that does what it can with all that the two share. */

const { url } = settings<{ url: string }>();
const engine = await Engine.open();
const before = new Set(descriptors());
const trial = (await engine.connect(url)).client(Trial);
await trial.echo({ token: "hello" });

function descriptors(): number[] {
  return readdirSync("/proc/self/fd").map(Number);
}

obey({
  ...engineCommands(engine),
  /** A process that gets a descriptor as its input makes it block for all that share its description. */
  block() {
    const shared = descriptors().filter((fd) => !before.has(fd));
    const made = shared.filter(
      (fd) => spawnSync("true", { stdio: [fd, "ignore", "ignore"] }).error === undefined,
    );
    return made.length;
  },
  /** Says from now on that a copy is under way, which no copy ends. */
  copy() {
    const page = readFileSync("/proc/self/maps", "latin1")
      .split("\n")
      .find((line) => line.includes("memfd:cinnabar-doorbell") && line.includes(" rw-s "));
    const copyingAt = Number.parseInt(page?.split("-")[0] ?? "", 16) + 64;
    const memory = openSync("/proc/self/mem", "r+");
    writeSync(memory, Uint8Array.of(1, 0, 0, 0), 0, 4, copyingAt);
    closeSync(memory);
  },
});
tell("met");
