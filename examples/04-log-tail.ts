// A server stream: a client follows a log, loses its place once, and resumes behind the last line that it has.
// Run it with `node build/examples/04-log-tail.js [url]`.
import { Engine, implement, RpcError, serverStream, service } from "cinnabar";
import { z } from "zod";

const Line = z.object({ number: z.int(), text: z.string() });
const Logs = service("logs.v1", {
  // Silence is no fault of a log: the heartbeat notices a dead server.
  tail: serverStream({
    input: z.object({ after: z.int() }),
    output: Line,
    idempotent: true,
    idleTimeoutMs: false,
  }),
});

const lines = Array.from({ length: 1000 }, (_, number) => ({ number, text: `line ${number}` }));
let failures = 1;

const url = process.argv[2] ?? `shm://logs-${process.pid}`;
await using server = await Engine.open({
  listen: [url],
  serve: [
    implement(Logs, {
      async *tail({ after }) {
        for (const line of lines.slice(after + 1)) {
          if (line.number === 600 && failures-- > 0)
            throw new RpcError({ code: "unavailable", message: "the log is being rotated" });
          yield line;
        }
      },
    }),
  ],
});

await using engine = await Engine.open();
const logs = (await engine.connect(server.urls[0] ?? url)).client(Logs, { retry: { attempts: 3 } });

/** Each line once, whatever happens on the way. */
async function* follow(): AsyncGenerator<z.infer<typeof Line>> {
  for (let after = -1, resumed = 0; ; resumed++) {
    try {
      for await (const line of logs.tail({ after })) {
        yield line;
        after = line.number;
      }
      return;
    } catch (error) {
      // Before the first line the client has tried again by itself. From then on only we know where we are.
      if (!(error instanceof RpcError && error.code === "unavailable") || resumed === 5) throw error;
      console.log(`resumes after line ${after}`);
    }
  }
}

let count = 0;
for await (const { number } of follow()) if (number === count) count++;
console.log(`${count} lines, each once`);
