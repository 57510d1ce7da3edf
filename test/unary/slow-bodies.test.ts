import { connect, createServer, type Socket } from "node:net";
import { bytes, type EngineOptions, implement, service, unary } from "cinnabar";
import { expect, it, onTestFinished, vi } from "vitest";
import { z } from "zod";
import { type OneSidedPlan, Scheduler } from "../../src/transfer/scheduler.ts";
import { openEngine, pair } from "../matrix/pair.ts";
import { transports } from "../matrix/providers.ts";
import { failure, until } from "../matrix/wait.ts";

const mebi = 1024 * 1024;

const Long = service("long.v1", {
  answer: unary({ input: z.number(), output: bytes() }),
  input: unary({ input: bytes(), output: z.number() }),
});
const serve = [
  implement(Long, { answer: (length) => new Uint8Array(length), input: ({ byteLength }) => byteLength }),
];

/** From now on no transfer begins. `end` ends those that would have. */
function holdTransfers(): { readonly plans: readonly OneSidedPlan[]; end(): void } {
  const plans: OneSidedPlan[] = [];
  const spy = vi.spyOn(Scheduler.prototype, "start").mockImplementation((plan) => {
    plans.push(plan);
    return undefined as never;
  });
  const end = () => {
    spy.mockRestore();
    for (const { listener } of plans.splice(0)) listener.onEnded(0);
  };
  onTestFinished(end);
  return { plans, end };
}

it.each(transports)("a caller over $name that lives and reads nothing is let go", async (provider) => {
  const limits = { maxBodyStallMs: 300 };
  const { server, client, api } = await pair(provider, serve, { server: { limits }, endsHard: true });
  const held = holdTransfers();
  // At a second for each 128 KiB the answer would be kept for 64 s.
  const error = await failure(api(Long).answer(8 * mebi, { timeoutMs: 600_000 }));
  expect(error).toMatchObject({
    code: "unavailable",
    message: expect.stringContaining("too slowly: one has waited for"),
  });
  expect([held.plans.length, server.stats().counters.sessionsShed]).toEqual([1, 1]);
  held.end();
  await until(
    () => server.stats().offeredBytes === 0 && client.stats().pullingBytes === 0,
    "memory given back",
  );
  await until(() => server.stats().quarantinedBytes === 0, "empty quarantine");
  expect(server.stats().counters.malformed + client.stats().counters.malformed).toBe(0);
});

/**
 * Carries what comes from one socket to the other, at most so many bytes in a second. What a busy machine delays by up to
 * a second is made up for.
 */
async function carry(from: Socket, to: Socket, bytesPerSecond: number): Promise<void> {
  let nextMs = 0;
  for await (const chunk of from) {
    to.write(chunk);
    const nowMs = performance.now();
    nextMs = Math.max(nextMs, nowMs - 1000) + (chunk.length / bytesPerSecond) * 1000;
    if (nextMs - nowMs > 1) await new Promise((resolve) => setTimeout(resolve, nextMs - nowMs));
  }
  to.end();
}

/** The port of a slow way to `port` of this host. */
async function slowWay(port: number, bytesPerSecond: number): Promise<number> {
  const sockets: Socket[] = [];
  const way = createServer((near) => {
    const far = connect(port, "127.0.0.1");
    for (const socket of [near, far]) sockets.push(socket.on("error", () => {}).setNoDelay(true));
    for (const carrying of [carry(near, far, bytesPerSecond), carry(far, near, bytesPerSecond)])
      carrying.catch(() => {});
  });
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
    way.close();
  });
  await new Promise<void>((resolve) => way.listen(0, "127.0.0.1", resolve));
  return (way.address() as { port: number }).port;
}

it("long answers and inputs over a slow link arrive, however long they take", async () => {
  // A body takes four times as long as a peer may move nothing. The link has six times the speed that is needed, since a
  // busy machine is slower. Pings wait behind bodies.
  const options: EngineOptions = { limits: { maxBodyStallMs: 2000 }, heartbeatMs: 8000 };
  const body = new Uint8Array(24 * mebi);
  const server = await openEngine({ listen: "tcp://127.0.0.1:0", serve, ...options });
  const port = await slowWay(Number(new URL(server.urls[0] as string).port), 3 * mebi);
  const client = await openEngine(options);
  const long = (await client.connect(`tcp://127.0.0.1:${port}`)).client(Long, { timeoutMs: 120_000 });
  const [answer, taken] = await Promise.all([long.answer(body.length), long.input(body)]);
  expect([answer.byteLength, taken]).toEqual([body.length, body.length]);
  for (const engine of [server, client])
    expect(engine.stats().counters).toMatchObject({ bodiesPulled: 1, sessionsShed: 0, sessionsOpened: 1 });
});
