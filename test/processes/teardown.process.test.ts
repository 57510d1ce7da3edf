import { Engine } from "cinnabar";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { isLong } from "../matrix/long.ts";
import { isOverNet } from "../matrix/over-net.ts";
import type { TeardownPlan, WorkersEnded } from "./programs/teardown.ts";
import { Child, type Ending, sharedFiles } from "./support/child.ts";
import { fabrics, freshName, freshUrl } from "./support/fabrics.ts";
import { endAllPeers } from "./support/peers.ts";

/** What Node itself prints of an uncaught error, and not a line more. */
const uncaught = /^file:.*\n.*\n[ \t]*\^\n\nError: on purpose\n( {4}at .*\n)+\nNode\.js v.*\n$/;

/** Ends are immediate, but for `close`, which takes half a second at most; the rest is for a busy machine. */
const withinMs = 60_000;

// For both fabrics, whose tests run beside each other.
afterAll(endAllPeers);

type Plan = Omit<TeardownPlan, "url">;

// A few at a time: most of a process's life is spent on starting Node.
describe.each(fabrics)("an engine over %s", { timeout: withinMs, concurrent: true }, (fabric) => {
  let server: Child;
  let url: string;
  /** The process whose workers end. In the long form each test has its own. */
  let host: Child;

  beforeAll(async () => {
    server = new Child("server", { listen: freshUrl(fabric), heartbeatMs: 10_000 });
    url = (await server.report("listening")).urls[0];
    host = startHost();
  });

  afterAll(async () => {
    await leave(host);
    await server.destroy();
  });

  function start(plan: Plan): Child {
    return new Child("teardown", { url, thread: "main", ...plan });
  }

  const startHost = () => new Child("teardown", { thread: "host" });

  /** Lets a host end as any process whose work is done. */
  async function leave(host: Child): Promise<void> {
    await host.ask("exit");
    await expectEnd(host, 0);
  }

  async function inHost(how: "worker" | "beside" | "pair", plan: Plan): Promise<WorkersEnded> {
    const own = isLong ? startHost() : host;
    const ended = await own.ask<WorkersEnded>(how, { url, ...plan });
    if (isLong) await leave(own);
    const { listen = "" } = plan;
    if (listen.startsWith("shm://")) expect(sharedFiles(listen.slice("shm://".length))).toEqual([]);
    return ended;
  }

  async function expectEnd(child: Child, ending: Ending, stderr: RegExp = /^$/, listen = ""): Promise<void> {
    expect(await child.ended, child.stderr).toBe(ending);
    expect(child.stderr).toMatch(stderr);
    // A signal leaves a process no time to tidy up; the next engine that opens does.
    if (typeof ending === "string") await (await Engine.open({ listen: `shm://${freshName()}` })).close();
    const names = listen.startsWith("shm://") ? [listen.slice("shm://".length)] : [];
    expect(sharedFiles(child.pid, ...names)).toEqual([]);
  }

  describe("on the main thread", () => {
    it.each<[TeardownPlan["during"], TeardownPlan["end"], Ending, RegExp?]>([
      ["nothing", "leave", 0],
      ["call", "close", 0],
      ["bulk", "close", 0],
      ["overflow", "close", 0],
      ["call", "exit", 7],
      ["bulk", "exit", 7],
      ["pooled", "exit", 7],
      ["overflow", "exit", 7],
      ["call", "throw", 1, uncaught],
      ["bulk", "throw", 1, uncaught],
      ["call", "reject", 1, uncaught],
    ])("with %s under way ends by %s", async (during, end, ending, stderr) => {
      await expectEnd(start({ during, end }), ending, stderr);
    });

    it("leaves when nothing is open, whatever the heartbeat", async () => {
      // A tick of that heartbeat comes after the test's time.
      await expectEnd(start({ during: "nothing", end: "leave", heartbeatMs: 8 * withinMs }), 0);
    });

    it("leaves when all is given up, though its peer stands still and sends are stuck", async () => {
      const still = new Child("server", { listen: freshUrl(fabric) });
      const quitter = new Child("quitter", {
        url: (await still.report("listening")).urls[0],
        server: still.pid,
        // Node keeps a process for the bytes that a socket has yet to write, until the connection is lost.
        heartbeatMs: isOverNet ? 5_000 : 60_000,
      });
      const { codes, sends } = await quitter.report("gave up");
      expect(codes).toEqual(["cancelled"]);
      expect(sends).toBeGreaterThan(0);
      await expectEnd(quitter, 0);
      await still.destroy();
    });

    it.each<[TeardownPlan["end"], Ending, RegExp?]>([
      ["close", 0],
      ["exit", 7],
      ["throw", 1, uncaught],
    ])("listening ends by %s", async (end, ending, stderr) => {
      const listen = freshUrl(fabric);
      await expectEnd(start({ during: "call", end, listen }), ending, stderr, listen);
    });

    it.each<[TeardownPlan["during"], NodeJS.Signals]>([
      ["call", "SIGTERM"],
      ["call", "SIGINT"],
      ["bulk", "SIGTERM"],
      ["overflow", "SIGTERM"],
      ["bulk", "SIGKILL"],
    ])("with %s under way dies of %s", async (during, signal) => {
      const listen = freshUrl(fabric);
      const child = start({ during, end: "wait", listen });
      await child.report("ready");
      child.kill(signal);
      await expectEnd(child, signal, /^$/, listen);
    });

    it("closes in a handler of SIGTERM", async () => {
      const child = start({ during: "call", end: "handler", listen: freshUrl(fabric) });
      await child.report("ready");
      child.kill("SIGTERM");
      await expectEnd(child, 0);
    });
  });

  describe("on a worker thread", () => {
    it.each<[TeardownPlan["during"], TeardownPlan["end"], number, boolean?]>([
      ["nothing", "leave", 0],
      ["call", "close", 0],
      ["bulk", "close", 0],
      ["overflow", "close", 0],
      ["call", "exit", 7],
      ["bulk", "exit", 7],
      ["overflow", "exit", 7],
      ["call", "throw", 1, true],
      ["call", "reject", 1, true],
      ["call", "terminate", 1],
      ["bulk", "terminate", 1],
      ["pooled", "close", 0],
      ["pooled", "exit", 7],
      ["pooled", "terminate", 1],
      ["overflow", "terminate", 1],
    ])(
      "with %s under way ends by %s, and the process goes on",
      async (during, end, status, throws = false) => {
        const thrown = throws ? ["on purpose"] : [];
        expect(await inHost("worker", { during, end })).toEqual({
          statuses: [status],
          thrown,
          token: "main",
        });
      },
    );

    it.each<TeardownPlan["end"]>(["close", "exit", "terminate"])("listening ends by %s", async (end) => {
      expect(await inHost("worker", { during: "call", end, listen: freshUrl(fabric) })).toMatchObject({
        thrown: [],
        token: "main",
      });
    });

    it("dies with the process", async () => {
      const listen = freshUrl(fabric);
      const child = startHost();
      const asked = child.ask("worker", { url, during: "call", end: "wait", listen });
      await child.report("ready");
      child.kill("SIGTERM");
      await expect(asked).rejects.toThrow("ended (SIGTERM)");
      await expectEnd(child, "SIGTERM", /^$/, listen);
    });

    it.each<TeardownPlan["end"]>(["close", "exit", "throw", "terminate"])(
      "ends by %s beside another of the main thread",
      async (end) => {
        expect(await inHost("beside", { during: "bulk", end })).toMatchObject({ token: "main" });
      },
    );

    // Both are of one process: over shm the provider shares its mapping between them.
    it.each<[TeardownPlan["during"], TeardownPlan["end"]]>([
      ["call", "close"],
      ["bulk", "close"],
      ["bulk", "terminate"],
      ["overflow", "exit"],
    ])("with %s from a neighbouring worker ends by %s", async (during, end) => {
      const ended = await inHost("pair", { during, end, listen: freshUrl(fabric) });
      expect(ended).toMatchObject({ statuses: [expect.any(Number), expect.any(Number)], thrown: [] });
    });
  });
});
