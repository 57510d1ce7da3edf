import { Engine } from "cinnabar";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { Child, type Ending, sharedFiles } from "./child.ts";
import { fabrics, freshName, freshUrl } from "./fabrics.ts";
import { endAllPeers } from "./peers.ts";
import type { TeardownSettings } from "./programs/teardown.ts";

/** What Node itself prints of an uncaught error, and not a line more. */
const uncaught = /^file:.*\n.*\n *\^\n\nError: on purpose\n( {4}at .*\n)+\nNode\.js v.*\n$/;

/** Ends are immediate, but for `close`, which takes half a second at most; the rest is for a busy machine. */
const withinMs = 60_000;

// Of both fabrics, whose tests run beside each other.
afterAll(endAllPeers);

type Plan = Omit<TeardownSettings, "url" | "thread">;

// A few at a time: most of a process's life is spent on starting Node. Each test waits for its own to end.
describe.each(fabrics)("an engine over %s", { timeout: withinMs, concurrent: true }, (fabric) => {
  let server: Child;
  let url: string;

  beforeAll(async () => {
    server = new Child("server", { listen: freshUrl(fabric), heartbeatMs: 10_000 });
    url = (await server.report("listening")).urls[0];
  });

  afterAll(() => server.destroy());

  function start(thread: TeardownSettings["thread"], plan: Plan): Child {
    return new Child("teardown", { url, thread, ...plan });
  }

  async function expectEnd(child: Child, ending: Ending, stderr: RegExp = /^$/, listen = ""): Promise<void> {
    expect(await child.ended, child.stderr).toBe(ending);
    expect(child.stderr).toMatch(stderr);
    // A signal leaves a process no time to tidy up; whoever opens next does.
    if (typeof ending === "string") await (await Engine.open({ listen: `shm://${freshName()}` })).close();
    const names = listen.startsWith("shm://") ? [listen.slice("shm://".length)] : [];
    expect(sharedFiles(child.pid, ...names)).toEqual([]);
  }

  describe("on the main thread", () => {
    it.each<[TeardownSettings["during"], TeardownSettings["end"], Ending, RegExp?]>([
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
      await expectEnd(start("main", { during, end }), ending, stderr);
    });

    it("leaves when nothing is open, whatever the heartbeat", async () => {
      // A tick of that heartbeat comes after the test's time.
      await expectEnd(start("main", { during: "nothing", end: "leave", heartbeatMs: 8 * withinMs }), 0);
    });

    it("leaves when all is given up, though its peer stands still and sends are stuck", async () => {
      const still = new Child("server", { listen: freshUrl(fabric) });
      const quitter = new Child("quitter", {
        url: (await still.report("listening")).urls[0],
        server: still.pid,
      });
      const { codes, sends } = await quitter.report("gave up");
      expect(codes).toEqual(["cancelled"]);
      expect(sends).toBeGreaterThan(0);
      await expectEnd(quitter, 0);
      await still.destroy();
    });

    it.each<[TeardownSettings["end"], Ending, RegExp?]>([
      ["close", 0],
      ["exit", 7],
      ["throw", 1, uncaught],
    ])("listening ends by %s", async (end, ending, stderr) => {
      const listen = freshUrl(fabric);
      await expectEnd(start("main", { during: "call", end, listen }), ending, stderr, listen);
    });

    it.each<[TeardownSettings["during"], NodeJS.Signals]>([
      ["call", "SIGTERM"],
      ["call", "SIGINT"],
      ["bulk", "SIGTERM"],
      ["overflow", "SIGTERM"],
      ["bulk", "SIGKILL"],
    ])("with %s under way dies of %s", async (during, signal) => {
      const listen = freshUrl(fabric);
      const child = start("main", { during, end: "wait", listen });
      await child.report("ready");
      child.kill(signal);
      await expectEnd(child, signal, /^$/, listen);
    });

    it("closes in a handler of SIGTERM", async () => {
      const child = start("main", { during: "call", end: "handler", listen: freshUrl(fabric) });
      await child.report("ready");
      child.kill("SIGTERM");
      await expectEnd(child, 0);
    });
  });

  describe("on a worker thread", () => {
    it.each<[TeardownSettings["during"], TeardownSettings["end"], number, boolean?]>([
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
        const child = start("worker", { during, end });
        expect(await child.report("worker ended")).toMatchObject({ status });
        expect(child.unread("thrown").map(({ message }) => message)).toEqual(throws ? ["on purpose"] : []);
        await child.report("unaffected");
        await expectEnd(child, 0);
      },
    );

    it.each<TeardownSettings["end"]>(["close", "exit", "terminate"])("listening ends by %s", async (end) => {
      const listen = freshUrl(fabric);
      const child = start("worker", { during: "call", end, listen });
      await child.report("unaffected");
      await expectEnd(child, 0, /^$/, listen);
    });

    it("dies with the process", async () => {
      const listen = freshUrl(fabric);
      const child = start("worker", { during: "call", end: "wait", listen });
      await child.report("ready");
      child.kill("SIGTERM");
      await expectEnd(child, "SIGTERM", /^$/, listen);
    });

    it.each<TeardownSettings["end"]>(["close", "exit", "throw", "terminate"])(
      "ends by %s beside another of the main thread",
      async (end) => {
        const child = start("both", { during: "bulk", end });
        await child.report("worker ended");
        expect(await child.report("unaffected")).toMatchObject({ token: "main" });
        await expectEnd(child, 0);
      },
    );

    // Both are of one process: over shm the provider shares its mapping between them.
    it.each<[TeardownSettings["during"], TeardownSettings["end"]]>([
      ["call", "close"],
      ["bulk", "close"],
      ["bulk", "terminate"],
      ["overflow", "exit"],
    ])("with %s from a neighbouring worker ends by %s", async (during, end) => {
      const listen = freshUrl(fabric);
      const child = start("pair", { during, end, listen });
      await child.report("worker ended");
      await child.report("worker ended");
      await expectEnd(child, 0, /^$/, listen);
    });
  });
});
