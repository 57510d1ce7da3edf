// Serves whatever clients ask until it is killed. What it executes at most once it has written down before it answers:
// a file outlives its process.
import { openSync, writeSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import { Engine, type EngineOptions, implement } from "cinnabar";
import { answerTo, Chaos, patternOf, turned } from "./chaos.ts";
import { engineCommands, obey, settings, tell } from "./commands.ts";

const { journal, ...options } = settings<
  Pick<EngineOptions, "listen" | "heartbeatMs"> & { readonly journal: string }
>();
const file = openSync(journal, "a");
const booked = new Map<string, number>();
const write = (token: string) => void writeSync(file, `${token}\n`);

const engine = await Engine.open({
  ...options,
  serve: [
    implement(Chaos, {
      small({ token }) {
        write(token);
        return answerTo(token);
      },
      async long({ body }) {
        if (Math.random() < 0.2) await delay(Math.random() * 20);
        return turned(body);
      },
      async fill({ token, into }, call) {
        write(token);
        await call.put(patternOf(token, into.byteLength), into, { chunkBytes: 65_536 });
        return answerTo(token);
      },
      async take({ token, from }, call) {
        const local = Buffer.alloc(from.byteLength);
        await call.get(from, local, { chunkBytes: 65_536 });
        return local.equals(patternOf(token, from.byteLength));
      },
      async book({ token }) {
        write(token);
        const times = (booked.get(token) ?? 0) + 1;
        booked.set(token, times);
        if (Math.random() < 0.3) await delay(Math.random() * 40);
        return times;
      },
    }),
  ],
});

obey(engineCommands(engine));
tell("listening", { urls: engine.urls });
