// @ts-nocheck It runs under Bun and Deno alone.
// Bun and Deno take the handler as it is: unary calls, a stream, clients that go away.
import { implement, serverStream, service, unary } from "cinnabar";
import { httpHandler } from "cinnabar-http";
import { httpClient } from "cinnabar-http/client";
import { z } from "zod";

const Work = service("work.v1", {
  echo: unary({ input: z.object({ text: z.string() }), output: z.object({ text: z.string() }) }),
  wait: unary(),
  endless: serverStream({ output: z.int() }),
});
const event = () => {
  let happen;
  const happened = new Promise((resolve) => {
    happen = resolve;
  });
  return { happen, happened };
};
const [begun, stopped, over] = [event(), event(), event()];
const handler = httpHandler({
  services: [
    implement(Work, {
      echo: ({ text }) => ({ text }),
      wait: (_, call) =>
        new Promise((_resolve, reject) => {
          call.signal.addEventListener("abort", () => {
            stopped.happen(call.signal.reason.code);
            reject(call.signal.reason);
          });
          begun.happen();
        }),
      async *endless() {
        try {
          for (let n = 0; ; n++) yield n;
        } finally {
          over.happen("over");
        }
      },
    }),
  ],
  allow: ["work.v1/echo", "work.v1/wait", "work.v1/endless"],
});
const server =
  typeof Bun === "undefined"
    ? Deno.serve({ port: 0, hostname: "127.0.0.1", onListen() {} }, handler)
    : Bun.serve({ port: 0, hostname: "127.0.0.1", fetch: handler });
const work = httpClient(Work, { url: `http://127.0.0.1:${server.port ?? server.addr.port}` });
console.log((await work.echo({ text: "hello" })).text);
const stop = new AbortController();
const waiting = work.wait({ signal: stop.signal }).catch((error) => error.code);
await begun.happened;
stop.abort();
console.log(await waiting, await stopped.happened);
for await (const n of work.endless()) if (n === 3) break;
console.log(await over.happened);
await handler.close();
console.log((await work.echo({ text: "late" }).catch((error) => error)).code);
await (server.shutdown?.() ?? server.stop(true));
console.log("closed");
