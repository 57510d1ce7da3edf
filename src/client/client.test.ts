import { inspect } from "node:util";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { RpcError } from "../base/errors/rpc-error.ts";
import type { FakeClock } from "../base/time/fake-clock.test-support.ts";
import type { OutgoingCall } from "../call/outgoing-call.ts";
import { RetriedCalls } from "../call/retried-calls.ts";
import { oneWay } from "../contract/one-way.ts";
import { service } from "../contract/service.ts";
import { clientStream, duplexStream, serverStream } from "../contract/stream.ts";
import { unary } from "../contract/unary.ts";
import type { OutgoingCalls } from "../session/calls/outgoing-calls.ts";
import { FakeServices } from "../session/connection/fake-services.test-support.ts";
import { MethodNumbers } from "../session/connection/method-numbers.ts";
import { methodKindNumbers } from "../wire/handshake.ts";
import { createClient } from "./client.ts";
import type { SessionSource } from "./session-source.ts";

setFlagsFromString("--expose-gc");
const collect = runInNewContext("gc") as () => void;

const Numbers = service("numbers.v1", {
  half: unary({ input: z.number(), output: z.number() }),
  slow: unary({ timeoutMs: 70 }),
  ping: unary(),
});

const Notes = service("notes.v1", { note: oneWay() });

const Flows = service("flows.v1", {
  down: serverStream({ output: z.number() }),
  up: clientStream({ items: z.number() }),
  both: duplexStream({ items: z.number(), output: z.number() }),
  on: oneWay(),
});

/** A function of a client for a program without types. */
type Loose = ((...args: unknown[]) => unknown) & { readonly result?: Loose; readonly open?: Loose };

/** A peer whose session opens or fails on demand. */
function unreachable() {
  const host = new FakeServices();
  let fail!: (error: unknown) => void;
  let asked = 0;
  const opening = new Promise<OutgoingCalls>((_, reject) => {
    fail = reject;
  });
  opening.catch(() => {});
  const source: SessionSource = {
    engine: host,
    name: "fake://peer",
    retried: new RetriedCalls(),
    closed: false,
    waitForReady: false,
    hasOthers: false,
    isConfidential: false,
    session() {
      asked++;
      return opening;
    },
  };
  return { host, clock: host.clock as FakeClock, source, fail, asked: () => asked };
}

describe("a client", () => {
  it("is a frozen plain object of functions, which can be awaited, printed and listed", async () => {
    const client = createClient(unreachable().source, Numbers);
    expect(Object.keys(client)).toEqual(["half", "slow", "ping"]);
    expect(Object.isFrozen(client)).toBe(true);
    expect(await client).toBe(client);
    expect(inspect(client)).toContain("half");
    expect(Object.isFrozen(client.half)).toBe(true);
    expect("toString" in client).toBe(false);
  });

  it("costs nothing until it calls", () => {
    const { source, host, asked } = unreachable();
    createClient(source, Numbers);
    expect([asked(), host.wheel.size, host.counters.callsStarted]).toEqual([0, 0, 0]);
  });

  it("gives every call a deadline: its own, the client's, the method's, ten seconds", async () => {
    const { source, clock, host } = unreachable();
    const codes: string[] = [];
    const watch = (name: string, call: Promise<unknown>) =>
      call.catch((error: RpcError) => codes.push(`${name} ${error.code}`));
    const plain = createClient(source, Numbers);
    const calls = [
      watch("own", plain.slow({ timeoutMs: 20 })),
      watch("client", createClient(source, Numbers, { timeoutMs: 40 }).slow()),
      watch("method", plain.slow()),
      watch("default", plain.ping()),
    ];
    expect(host.wheel.size).toBe(4);
    for (const [advanceMs, expected] of [
      [30, ["own deadline_exceeded"]],
      [20, ["client deadline_exceeded"]],
      [30, ["method deadline_exceeded"]],
      [9900, []],
      [100, ["default deadline_exceeded"]],
    ] as const) {
      clock.advance(advanceMs);
      await new Promise(setImmediate);
      expect(codes.splice(0)).toEqual(expected);
    }
    await Promise.all(calls);
    expect([host.wheel.size, clock.timers]).toEqual([0, 0]);
  });

  it("keeps nothing of the last call", async () => {
    const { source } = unreachable();
    source.session = () => {
      throw new RpcError({ code: "unavailable", message: "nobody", origin: "local" });
    };
    // In a function of its own, so that no frame keeps the error.
    const errorOf = async () => {
      const error: unknown = await createClient(source, Numbers)
        .ping()
        .catch((error: unknown) => error);
      return new WeakRef(error as RpcError);
    };
    const kept = await errorOf();
    await expect
      .poll(() => {
        collect();
        return kept.deref() === undefined;
      })
      .toBe(true);
  });

  it("leaves the promise of a one-way call to its caller, however long the session keeps the call", async () => {
    const { source } = unreachable();
    const methods = new MethodNumbers();
    methods.set([["notes.v1", [["note", methodKindNumbers.oneWay]]]]);
    const kept: OutgoingCall[] = [];
    const waiting: OutgoingCall[] = [];
    let isFull = false;
    const session = {
      methods,
      request(call: OutgoingCall) {
        kept.push(call);
        if (isFull) waiting.push(call);
        else call.onLeft();
      },
      cancel() {},
    };
    source.session = () => session as unknown as OutgoingCalls;
    const client = createClient(source, Notes);
    const promiseOf = async (leave: () => void) => {
      const promise = client.note();
      leave();
      expect(await promise).toBeUndefined();
      return new WeakRef(promise);
    };
    const promises = [await promiseOf(() => {})];
    isFull = true;
    promises.push(await promiseOf(() => waiting.pop()?.onLeft()));
    await expect
      .poll(() => {
        collect();
        return promises.filter((promise) => promise.deref() !== undefined);
      })
      .toEqual([]);
    expect(kept.map(({ settled }) => settled)).toEqual([true, true]);
  });

  it("settles each call once, whatever comes after", async () => {
    const { source, host, fail, clock } = unreachable();
    const controller = new AbortController();
    const call = createClient(source, Numbers).half(1, { signal: controller.signal });
    controller.abort("first");
    fail(new RpcError({ code: "unavailable", message: "second" }));
    clock.advance(20_000);
    await expect(call).rejects.toMatchObject({ code: "cancelled", cause: "first" });
    expect(host.counters).toMatchObject({ callsStarted: 1, callsFailed: 1, callsSucceeded: 0 });
  });

  it("settles a call once whose input gives it up and then cannot be encoded", async () => {
    const { source, host } = unreachable();
    const methods = new MethodNumbers();
    methods.set([["numbers.v1", ["half"]]]);
    const controller = new AbortController();
    const session = {
      methods,
      request() {
        controller.abort("first");
        throw new RpcError({ code: "invalid_argument", message: "second", origin: "local" });
      },
      cancel() {},
    };
    source.session = () => session as unknown as OutgoingCalls;
    const call = createClient(source, Numbers).half(1, { signal: controller.signal });
    await expect(call).rejects.toMatchObject({ code: "cancelled", cause: "first" });
    expect(host.counters).toMatchObject({ callsStarted: 1, callsFailed: 1 });
  });

  it("gives calls that wait for one session errors of their own when it fails", async () => {
    const { source, fail } = unreachable();
    const client = createClient(source, Numbers);
    const calls = [client.half(1), client.ping()].map((call) => call.catch((error: unknown) => error));
    fail(
      new RpcError({ code: "unavailable", message: "the peer is away", origin: "fabric", retryAfterMs: 5 }),
    );
    const [half, ping] = (await Promise.all(calls)) as RpcError[];
    expect(half).not.toBe(ping);
    expect(half).toMatchObject({
      method: "numbers.v1/half",
      origin: "fabric",
      retryAfterMs: 5,
      retryable: true,
    });
    expect(half?.message).toBe("[unavailable] the peer is away");
    expect(ping).toMatchObject({ method: "numbers.v1/ping" });
  });

  it("checks the input before it asks for a session", async () => {
    const { source, asked } = unreachable();
    const client = createClient(source, Numbers);
    await expect(client.half("1" as never)).rejects.toMatchObject({
      code: "invalid_argument",
      origin: "local",
    });
    expect(asked()).toBe(0);
  });

  it("takes options first where there is no input, and refuses what stands behind them", async () => {
    const { source, asked } = unreachable();
    const numbers = createClient(source, Numbers) as unknown as Record<"ping", Loose>;
    const flows = createClient(source, Flows) as unknown as Record<"down" | "up" | "both" | "on", Loose>;
    const behind = [undefined, { timeoutMs: 5 }];
    const calls: [Loose | undefined, unknown[]][] = [
      [numbers.ping, behind],
      [numbers.ping.result, behind],
      [flows.on, behind],
      [flows.down, behind],
      [flows.up, [[], ...behind]],
      [flows.up.result, [[], ...behind]],
      [flows.up.open, behind],
      [flows.both, [[], ...behind]],
      [flows.both.open, behind],
    ];
    for (const [call, args] of calls)
      expect(() => call?.(...args)).toThrow(/v1\/\w+ takes no input; its options come in that place/);
    for (const input of [5, { id: 7 }]) expect(() => numbers.ping(input)).toThrow(TypeError);
    expect(asked()).toBe(0);
  });

  it("knows a contract of another copy of the package that declares no input", () => {
    const { source } = unreachable();
    const copied = { ...Numbers.methods.ping, input: { ...Numbers.methods.ping.input } };
    const client = createClient(source, { ...Numbers, methods: { ping: copied } });
    expect(() => client.ping({ timeoutMs: -1 })).toThrow("call: timeoutMs");
  });
});
