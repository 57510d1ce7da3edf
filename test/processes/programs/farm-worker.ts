import { Engine, implement } from "cinnabar";
import { engineCommands, obey, settings, tell } from "./commands.ts";
import { ending, Farm, type FarmSettings, optionsOf, Worker } from "./farm-service.ts";

/* Connects to the farm and serves it there. It listens nowhere. */

const own = settings<FarmSettings & { name: string }>();
const engine = await Engine.open(optionsOf(own));
const chunkBytes = 64 << 10;

const worker = implement(Worker, {
  double: (n) => n * 2,
  left: (_, call) => call.timeLeftMs,
  hang(_, { signal }) {
    tell("serving", { kind: "hang" });
    return new Promise((_, reject) => {
      signal.addEventListener("abort", () => {
        tell("aborted", { code: (signal.reason as { code: string }).code });
        reject(signal.reason);
      });
    });
  },
  async *count() {
    for (let i = 0; ; i++) {
      if (i === 3) tell("serving", { kind: "count" });
      yield i;
    }
  },
  async fill({ from, to }, call) {
    const chunk = new Uint8Array(chunkBytes);
    for (let offset = 0; ; offset = (offset + chunkBytes) % from.byteLength) {
      await call.get(from, chunk, { offset });
      await call.put(chunk, to, { offset });
      if (offset === chunkBytes) tell("serving", { kind: "fill" });
    }
  },
  long(input) {
    tell("serving", { kind: "long" });
    return input.byteLength;
  },
});

const peer = await engine.connect(own.url, { serve: [worker], timeoutMs: 20_000 });
const farm = peer.client(Farm);
peer.on("lost", ({ reason }) => tell("lost", { code: reason.code }));

obey({
  ...engineCommands(engine),
  wait: () => ending(farm.wait({ timeoutMs: 60_000 })),
});
tell("joined", await farm.join(own.name, { timeoutMs: 20_000 }));
