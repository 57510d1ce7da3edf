import { openSync, rmSync, statfsSync, writeSync } from "node:fs";
import { Engine, RpcError } from "cinnabar";
import { settings } from "./commands.ts";
import { serveTrial } from "./serve-trial.ts";
import { Trial } from "./trial.ts";

/* Uses shm in a /dev/shm of its own, and prints what came of it as JSON. */

const { clients } = settings<{ clients: number }>();
const ballast = "/dev/shm/ballast";

/** Takes all the room that is left, as another user of the machine may. */
function fillTheRest(): void {
  const file = openSync(ballast, "w");
  for (let bytes = 1 << 20; bytes >= 4096; ) {
    try {
      writeSync(file, new Uint8Array(bytes));
    } catch {
      bytes /= 2;
    }
  }
}

try {
  const server = await Engine.open({ listen: "shm://room", serve: [serveTrial(() => "")] });
  const engines: Engine[] = [];
  const trials = [];
  for (let i = 0; i < clients; i++) {
    const engine = await Engine.open();
    engines.push(engine);
    trials.push((await engine.connect("shm://room")).client(Trial, { timeoutMs: 50_000 }));
  }
  fillTheRest();
  const { bavail } = statfsSync("/dev/shm");
  // Messages of several fragments, far more than a queue holds: every page of every queue is written to.
  const load = "x".repeat(12_000);
  let answers = 0;
  for (const trial of trials) {
    const all = Array.from({ length: 300 }, (_, number) =>
      trial.note({ writer: "w", number, load }).then(() => answers++),
    );
    await Promise.all(all);
  }
  // A later port finds no room, and says so.
  const late = await Engine.open({ listen: "shm://late" }).catch((error: RpcError) => error);
  rmSync(ballast);
  for (const engine of engines) await engine.close();
  await server.close();
  console.log(
    JSON.stringify({ freePages: bavail, answers, late: late instanceof RpcError ? late.code : "opened" }),
  );
} catch (error) {
  const { code, message } = error as RpcError;
  console.log(JSON.stringify({ code, message }));
}
