import { implement, service, unary } from "cinnabar";
import { expect, it } from "vitest";
import { z } from "zod";
import { openEngine } from "../matrix/pair.ts";
import { until } from "../matrix/wait.ts";

const Numbered = service("numbered.v1", { number: unary({ output: z.number() }) });

it("of 5,000 connected clients the one that is meant is called, and no other", {
  timeout: 240_000,
}, async () => {
  // All of them live on this thread, which is busy with others for long.
  const heartbeatMs = 60_000;
  const limits = { maxSessions: 10_000 };
  const server = await openEngine({ listen: "mem://five-thousand", limits, heartbeatMs });
  const served: number[] = [];
  const engines = await Promise.all(
    Array.from({ length: 50 }, () => openEngine({ limits: { maxSessions: 200 }, heartbeatMs })),
  );
  for (const [e, engine] of engines.entries()) {
    const connects = Array.from({ length: 100 }, (_, i) => {
      const number = e * 100 + i;
      const mine = implement(Numbered, {
        number() {
          served.push(number);
          return number;
        },
      });
      return engine.connect("mem://five-thousand", { serve: [mine], timeoutMs: 60_000 });
    });
    await Promise.all(connects);
  }
  await until(() => server.peers().length === 5000, "all of them");
  const peers = server.peers();
  const before = engines.reduce((sum, engine) => sum + engine.stats().counters.messagesReceived, 0);
  const number = await peers[1234]?.client(Numbered).number();
  expect(served).toEqual([number]);
  const after = engines.reduce((sum, engine) => sum + engine.stats().counters.messagesReceived, 0);
  // Its request, and no word to any of the others.
  expect(after - before).toBe(1);
  expect(await peers[1234]?.client(Numbered).number()).toBe(number);
});
