import {
  bulk,
  type ClientOptions,
  implement,
  RpcError,
  type RpcErrorOptions,
  service,
  unary,
} from "cinnabar";
import { afterEach, describe, expect, it, vi } from "vitest";
import { z } from "zod";
import { Region } from "../../src/memory/region.ts";
import { RegionCore } from "../../src/memory/region-core.ts";
import { Exchange } from "../../src/session/calls/exchange.ts";
import { frameKind } from "../../src/wire/frame.ts";
import { LossyPair } from "./support/lossy-fabric.ts";

const Work = service("work.v1", {
  plain: unary({ output: z.unknown() }),
  idempotent: unary({ output: z.unknown(), idempotent: true, errors: { Busy: z.object({ load: z.int() }) } }),
  replayed: unary({ output: z.unknown(), replay: true }),
  fill: unary({ input: z.object({ into: bulk("write") }), idempotent: true }),
});

const region = (bytes = 64) =>
  new Region<"write">(new RegionCore({ onRegionReleased() {} }, [new Uint8Array(bytes)], "write"));

type Handler = (attempt: number, signal: AbortSignal) => unknown;

/** What a handler throws to fail with this. */
const failing = (options: Partial<RpcErrorOptions>) => (): never => {
  throw new RpcError({ code: "unavailable", message: "not now", ...options });
};

/** A pair whose methods are all the same handler, told which execution it is. */
function setUp(handler: Handler, limits = {}) {
  let executions = 0;
  const signals: AbortSignal[] = [];
  const handle = (call: { readonly signal: AbortSignal }) => {
    signals.push(call.signal);
    return handler(++executions, call.signal);
  };
  const pair = new LossyPair(
    [
      implement(Work, {
        plain: (_, call) => handle(call),
        idempotent: (_, call) => handle(call),
        replayed: (_, call) => handle(call),
        fill: async (_, call) => void (await handle(call)),
      }),
    ],
    limits,
  );
  const { clock } = pair;
  const client = (options: ClientOptions = {}) =>
    pair.peer.client(Work, { retry: { attempts: 4, baseDelayMs: 8 }, ...options });
  /** Turns the loop until the call has ended; its value or error, and when that was. */
  const end = async (call: Promise<unknown>) => {
    let ended: { readonly value?: unknown; readonly error?: RpcError; readonly atMs: number } | undefined;
    call.then(
      (value) => (ended = { value, atMs: clock.now() }),
      (error: RpcError) => (ended = { error, atMs: clock.now() }),
    );
    await pair.run(() => ended !== undefined);
    return ended as NonNullable<typeof ended>;
  };
  const error = async (call: Promise<unknown>) => (await end(call)).error as RpcError;
  const until = (condition: () => boolean) => pair.run(condition);
  const never = () => new Promise(() => {});
  return { pair, clock, client, end, error, until, never, signals, executions: () => executions };
}

const held = (pair: LossyPair) => [pair.client.host.wheel.size, pair.connection.retried.size];

afterEach(() => vi.restoreAllMocks());

describe("a call that fails", () => {
  it("is not tried again unless its client or it says so", async () => {
    const { client, error, executions, pair } = setUp(failing({}));
    const failed = await error(client({ retry: false }).idempotent());
    expect([failed.code, "attempts" in failed, executions()]).toEqual(["unavailable", false, 1]);
    await error(client().idempotent({ retry: false }));
    expect(executions()).toBe(2);
    await error(client({ retry: false }).idempotent({ retry: { attempts: 2 } }));
    expect(executions()).toBe(4);
    expect(held(pair)).toEqual([0, 0]);
  });

  it("is tried again until it succeeds, where executing it twice does no harm", async () => {
    const { client, end, executions, pair } = setUp((attempt) => (attempt < 3 ? failing({})() : "done"));
    expect((await end(client().idempotent())).value).toBe("done");
    expect(executions()).toBe(3);
    expect(pair.client.host.counters).toMatchObject({
      callsStarted: 1,
      callsSucceeded: 1,
      callsFailed: 0,
      retries: 2,
    });
    expect(held(pair)).toEqual([0, 0]);
  });

  it("ends with the last error, which says how many attempts there were", async () => {
    const { client, error, executions } = setUp((attempt) => failing({ message: `number ${attempt}` })());
    expect(await error(client().idempotent())).toMatchObject({
      message: "[unavailable] number 4",
      attempts: 4,
      method: "work.v1/idempotent",
      origin: "remote",
    });
    expect(executions()).toBe(4);
  });

  it.each(["plain", "replayed"] as const)(
    "is not tried again when a handler of %s has answered with the error",
    async (name) => {
      const { client, error, executions } = setUp(failing({}));
      const failed = await error(client()[name]());
      expect([failed.code, failed.attempts, failed.notExecuted, executions()]).toEqual([
        "unavailable",
        undefined,
        undefined,
        1,
      ]);
    },
  );

  it("is tried again whatever its method when no handler was begun", async () => {
    const { pair, client, end, executions } = setUp(() => "done");
    await end(client().plain());
    // Where the requests go nobody is: the first attempts do not get past connecting.
    pair.restart();
    const connect = vi
      .spyOn(pair.client.table, "connect")
      .mockRejectedValueOnce(
        new RpcError({ code: "unavailable", message: "nobody answers", origin: "fabric" }),
      );
    expect((await end(client().plain())).value).toBe("done");
    expect([connect.mock.calls.length, executions()]).toEqual([2, 2]);
    connect.mockRejectedValue(
      new RpcError({ code: "unavailable", message: "nobody answers", origin: "fabric" }),
    );
    pair.breakSessions();
    const failed = (await end(client().plain())).error;
    expect(failed).toMatchObject({ code: "unavailable", notExecuted: true, attempts: 4 });
  });

  it("is not tried again for codes that are not to be retried, nor for declared errors", async () => {
    const { client, error, executions } = setUp(failing({ code: "aborted" }));
    expect((await error(client().idempotent())).code).toBe("aborted");
    expect(executions()).toBe(1);
    await error(client().idempotent({ retry: { codes: ["aborted"], attempts: 2 } }));
    expect(executions()).toBe(3);
    const declared = setUp(failing({ reason: "Busy", data: { load: 3 } }));
    expect(await declared.error(declared.client().idempotent())).toMatchObject({
      reason: "Busy",
      data: { load: 3 },
    });
    expect(declared.executions()).toBe(1);
  });

  it("comes back no sooner than the server asked, whatever the code", async () => {
    const { client, end, clock, executions } = setUp((attempt) =>
      attempt === 1 ? failing({ code: "failed_precondition", retryAfterMs: 500 })() : "done",
    );
    const startMs = clock.now();
    const { value, atMs } = await end(client().idempotent());
    expect([value, executions()]).toEqual(["done", 2]);
    expect(atMs - startMs).toBeGreaterThanOrEqual(500);
  });

  it("ends at once when its time would be up before the next attempt", async () => {
    const { client, end, clock } = setUp(failing({ retryAfterMs: 5000 }));
    const startMs = clock.now();
    const { error, atMs } = await end(client({ timeoutMs: 3000 }).idempotent());
    expect(error).toMatchObject({ code: "unavailable", retryAfterMs: 5000 });
    expect(atMs - startMs).toBeLessThan(100);
  });

  it("waits a random time below a bound that doubles", async () => {
    vi.spyOn(Math, "random").mockReturnValue(0.99);
    const startsMs: number[] = [];
    const { client, end, clock } = setUp(() => {
      startsMs.push(clock.now());
      return failing({})();
    });
    await end(client({ retry: { attempts: 4, baseDelayMs: 100, maxDelayMs: 250 } }).idempotent());
    const waits = startsMs.slice(1).map((atMs, index) => atMs - (startsMs[index] as number));
    for (const [index, bound] of [100, 200, 250].entries()) {
      expect(waits[index]).toBeGreaterThanOrEqual(bound * 0.98);
      // A tick of the wheel, and one of the test's.
      expect(waits[index]).toBeLessThanOrEqual(bound + 12);
    }
  });

  it("is not tried again when its client's budget is spent, and that is counted", async () => {
    const { client, error, executions, pair } = setUp(failing({}));
    const stingy = client({ retry: { attempts: 10, baseDelayMs: 1, budget: { ratio: 0.5, perSecond: 0 } } });
    for (let i = 0; i < 20; i++) await error(stingy.idempotent());
    expect(executions()).toBe(30);
    expect(pair.client.host.counters).toMatchObject({ retries: 10, retriesWithheld: 20 });
  });
});

describe("a call with replay whose answer is lost", () => {
  it("is tried again even when the peer cannot be reached at once", async () => {
    const { client, end, executions, pair } = setUp(() => "done");
    let lost = 0;
    pair.fates(
      () => "arrives",
      (kinds) => (kinds.includes(frameKind.response) && lost-- > 0 ? "lost with its session" : "arrives"),
    );
    await end(client().plain());
    lost = 1;
    const call = client().replayed();
    vi.spyOn(pair.client.table, "connect").mockRejectedValueOnce(
      new RpcError({ code: "unavailable", message: "nobody answers", origin: "fabric" }),
    );
    expect((await end(call)).value).toBe("done");
    expect([executions(), pair.server.host.counters.replays]).toEqual([2, 1]);
  });

  it("says so when another process has taken the server's place", async () => {
    const { client, error, executions, pair, clock, never } = setUp(() => never());
    clock.timer(30, () => pair.restart());
    const failed = await error(client().replayed());
    expect(failed).toMatchObject({ code: "aborted", attempts: 2 });
    expect(failed.message).toContain("an earlier attempt may have been executed");
    expect([failed.notExecuted, executions()]).toEqual([undefined, 1]);
    expect(failed.cause).toMatchObject({ code: "unavailable" });
  });
});

describe("an attempt that takes too long", () => {
  const slowFirst = (until: Handler) => (attempt: number, signal: AbortSignal) =>
    attempt === 1 ? until(1, signal) : "done";

  it("is given up, and the next is made", async () => {
    const { client, end, signals, until } = setUp(slowFirst(() => new Promise(() => {})));
    const { value } = await end(client({ attemptTimeoutMs: 50 }).idempotent());
    expect(value).toBe("done");
    await until(() => (signals[0] as AbortSignal).aborted);
  });

  it("ends a call that must not be executed twice", async () => {
    const { client, error, executions, never } = setUp(() => never());
    expect(await error(client({ attemptTimeoutMs: 50 }).plain())).toMatchObject({
      code: "deadline_exceeded",
    });
    expect(executions()).toBe(1);
  });

  it("goes on at a server that keeps answers: the next attempt joins it", async () => {
    const { client, end, executions, signals, clock, pair } = setUp(
      () => new Promise((resolve) => clock.timer(170, () => resolve("done"))),
    );
    const { value } = await end(client({ attemptTimeoutMs: 50 }).replayed());
    expect([value, executions(), signals[0]?.aborted]).toEqual(["done", 1, false]);
    expect(pair.server.host.counters.replays).toBeGreaterThanOrEqual(2);
  });

  it("bounds the one attempt of a call without retries", async () => {
    const { client, error, never } = setUp(() => never());
    const failed = await error(client({ retry: false, attemptTimeoutMs: 40 }).idempotent());
    expect([failed.code, failed.attempts]).toEqual(["deadline_exceeded", undefined]);
    expect(failed.message).toContain("attempt 1 took longer than attemptTimeoutMs 40");
  });
});

describe("a call that is given up", () => {
  it.each([
    ["waits to be tried again", failing({ retryAfterMs: 900 }), {}, [false]],
    ["has an attempt under way", () => new Promise(() => {}), {}, [true]],
  ] as const)(
    "while it %s ends at once, and so does what was begun for it",
    async (_, handler, options, told) => {
      const { client, end, clock, signals, until, pair } = setUp(handler);
      const controller = new AbortController();
      const startMs = clock.now();
      clock.timer(100, () => controller.abort("enough"));
      const { error, atMs } = await end(client(options).idempotent({ signal: controller.signal }));
      expect(error).toMatchObject({ code: "cancelled", cause: "enough", origin: "local" });
      expect(atMs - startMs).toBeLessThan(120);
      expect(held(pair)).toEqual([0, 0]);
      const [session] = pair.client.table;
      await until(() => session?.part(Exchange).outgoing.size === 0);
      expect(signals.map(({ aborted }) => aborted)).toEqual(told);
      expect(pair.server.host.wheel.size).toBe(0);
    },
  );

  it("while it connects ends at once", async () => {
    const { client, end, clock, pair } = setUp(() => "done");
    await end(client().plain());
    pair.breakSessions();
    vi.spyOn(pair.client.table, "connect").mockReturnValue(new Promise(() => {}));
    const controller = new AbortController();
    clock.timer(50, () => controller.abort());
    const { error } = await end(client().plain({ signal: controller.signal }));
    expect(error).toMatchObject({ code: "cancelled", notExecuted: true });
    expect(held(pair)).toEqual([0, 0]);
  });

  it("by the end of its time says what the last attempt met", async () => {
    const { client, error, never } = setUp((attempt) => (attempt === 1 ? failing({})() : never()));
    const failed = await error(client({ timeoutMs: 200 }).idempotent());
    expect(failed).toMatchObject({ code: "deadline_exceeded", attempts: 2, origin: "local" });
    expect(failed.cause).toMatchObject({ code: "unavailable" });
  });

  it("by the close of its peer ends at once, even between two attempts", async () => {
    const { client, end, clock, pair } = setUp(failing({ retryAfterMs: 5000 }));
    clock.timer(100, () => pair.peer.close());
    const { error, atMs } = await end(client().idempotent());
    expect(error?.message).toContain("has been closed");
    expect(atMs).toBeLessThan(1200);
    expect(held(pair)).toEqual([0, 0]);
  });
});

describe("a call that lends memory", () => {
  it("is tried again when its former attempt has given the memory back", async () => {
    const { client, end, executions } = setUp((attempt) => (attempt === 1 ? failing({})() : undefined));
    expect(await end(client().fill({ into: region() }))).not.toHaveProperty("error");
    expect(executions()).toBe(2);
  });

  it("waits with the next attempt until an attempt that was too slow has ended at its server", async () => {
    const { client, end, executions, pair, never } = setUp((attempt) =>
      attempt === 1 ? never() : undefined,
    );
    let withheld = 3;
    pair.fates(
      (kinds) => {
        // The cancel of the first attempt is lost: until its own time is up the server goes on.
        return kinds.includes(frameKind.cancel) && withheld-- > 0 ? "lost" : "arrives";
      },
      () => "arrives",
    );
    expect(await end(client({ attemptTimeoutMs: 60 }).fill({ into: region() }))).not.toHaveProperty("error");
    expect(executions()).toBe(2);
  });

  it("is not tried again when nobody knows whether the lost peer still writes", async () => {
    const { client, error, executions, pair, clock, never } = setUp(() => never());
    Object.defineProperty(pair.client.port, "revokesKeys", { value: false });
    clock.timer(30, () => {
      const lost = new RpcError({ code: "unavailable", message: "silent", origin: "fabric" });
      for (const session of pair.client.table) session.end(lost, { quiet: true, certain: false });
    });
    expect(await error(client().fill({ into: region() }))).toMatchObject({ code: "unavailable" });
    expect(executions()).toBe(1);
    expect(held(pair)).toEqual([0, 0]);
  });

  it("ends when the peer is lost whose memory the next attempt waits for", async () => {
    const { client, end, executions, pair, clock, never } = setUp(() => never());
    Object.defineProperty(pair.client.port, "revokesKeys", { value: false });
    // The server ends the first attempt, and the client does not hear of it.
    pair.fates(
      () => "arrives",
      (kinds) => (kinds.includes(frameKind.error) ? "lost" : "arrives"),
    );
    clock.timer(200, () => {
      const lost = new RpcError({ code: "unavailable", message: "silent", origin: "fabric" });
      for (const session of pair.client.table) session.end(lost, { quiet: true, certain: false });
    });
    const startMs = clock.now();
    const { error, atMs } = await end(
      client({ timeoutMs: 5000, attemptTimeoutMs: 60 }).fill({ into: region() }),
    );
    expect(error).toMatchObject({ code: "unavailable", cause: { code: "deadline_exceeded" } });
    expect(error?.message).toContain("may still access memory");
    expect(atMs - startMs).toBeLessThan(300);
    expect(executions()).toBe(1);
    expect(held(pair)).toEqual([0, 0]);
  });

  it("is tried again after a silent peer where its keys die with the grant", async () => {
    const { client, end, executions, pair, clock, never } = setUp((attempt) =>
      attempt === 1 ? never() : undefined,
    );
    clock.timer(30, () => {
      const lost = new RpcError({ code: "unavailable", message: "silent", origin: "fabric" });
      for (const session of pair.client.table) session.end(lost, { quiet: true, certain: false });
    });
    expect(await end(client().fill({ into: region() }))).not.toHaveProperty("error");
    expect(executions()).toBe(2);
  });
});
