import assert from "node:assert/strict";
import { describe, it, type TestContext } from "node:test";
import { Engine, implement, type Peer, RpcError, service, unary } from "cinnabar";
import { z } from "zod";

/* Tests as a user writes them with node:test. They run in a process of their own; ../node-test.test.ts starts it. */

const Reports = service("reports.v1", {
  add: unary({ input: z.number(), output: z.number() }),
  never: unary(),
  slow: unary({ output: z.string() }),
});

const reports = implement(Reports, {
  add: (value) => value + 1,
  never: () => new Promise<never>(() => {}),
  slow: () => new Promise((resolve) => setTimeout(() => resolve("made"), 60_000)),
});

/** Runs `use` with a client of an engine in the same process. */
async function withReports(use: (client: ReturnType<typeof clientOf>) => Promise<void>): Promise<void> {
  const server = await Engine.open({ listen: "mem://reports", serve: [reports] });
  const engine = await Engine.open();
  try {
    await use(clientOf(await engine.connect("mem://reports")));
  } finally {
    await engine.close();
    await server.close();
  }
}

const clientOf = (peer: Peer) => peer.client(Reports);

const isOverdue = (error: unknown) => error instanceof RpcError && error.code === "deadline_exceeded";

describe("mem:// under node:test's mock timers", () => {
  it("connects, calls and closes while all are mocked", async ({ mock }: TestContext) => {
    mock.timers.enable();
    await withReports(async (client) => assert.equal(await client.add(1), 2));
  });

  it("ends a deadline to the millisecond", async ({ mock }) => {
    mock.timers.enable();
    await withReports(async (client) => {
      let isSettled = false;
      const call = assert.rejects(client.never({ timeoutMs: 50 }), isOverdue).finally(() => {
        isSettled = true;
      });
      // A call that goes there and back: the first has arrived before it.
      await client.add(1);
      mock.timers.tick(49);
      await client.add(1);
      assert.equal(isSettled, false);
      mock.timers.tick(1);
      await call;
    });
  });

  it("lets a handler's timer fire before the deadline", async ({ mock }) => {
    mock.timers.enable({ apis: ["setTimeout", "Date"] });
    await withReports(async (client) => {
      const call = client.slow({ timeoutMs: 90_000 });
      await client.add(1);
      mock.timers.tick(60_000);
      assert.equal(await call, "made");
    });
  });

  it("ends a deadline when only setTimeout is mocked", async ({ mock }) => {
    mock.timers.enable({ apis: ["setTimeout"] });
    await withReports(async (client) => {
      const call = assert.rejects(client.never({ timeoutMs: 30_000 }), isOverdue);
      await client.add(1);
      mock.timers.tick(30_000);
      await call;
    });
  });

  it("keeps deadlines when the mocks are gone", async () => {
    await withReports((client) => assert.rejects(client.never({ timeoutMs: 20 }), isOverdue));
  });
});
