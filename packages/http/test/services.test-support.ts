import {
  bytes,
  clientStream,
  error,
  implement,
  oneWay,
  type RpcCode,
  RpcError,
  serverStream,
  service,
  unary,
} from "cinnabar";
import { z } from "zod";

export const Greeter = service("greeter.v1", {
  greet: unary({
    input: z.object({ name: z.string() }),
    output: z.object({ text: z.string() }),
    errors: {
      NameIsTaken: error({
        data: z.object({ by: z.string(), since: z.date().optional() }),
        code: "already_exists",
        message: "the name is taken",
      }),
    },
  }),
  fail: unary({ input: z.object({ code: z.string() }) }),
  /** Answers when its signal fires, or never. */
  wait: unary(),
  ping: unary(),
  note: oneWay({ input: z.object({ text: z.string() }) }),
  echoMetadata: unary({ output: z.record(z.string(), z.string()) }),
  /** Values that JSON does not have. */
  beyond: unary({
    input: z.object({
      big: z.bigint(),
      at: z.date(),
      raw: bytes(),
      map: z.map(z.string(), z.int()),
      set: z.set(z.int()),
    }),
    output: z.object({
      big: z.bigint(),
      at: z.date(),
      raw: bytes(),
      map: z.map(z.string(), z.int()),
      set: z.set(z.int()),
      kinds: z.string(),
    }),
  }),
  any: unary({ input: z.unknown(), output: z.unknown() }),
});

const Item = z.object({ n: z.int(), big: z.bigint().optional() });

export const Counter = service("counter.v1", {
  /** Counts from 1 to `to`, and fails after `failAfter`. */
  count: serverStream({
    input: z.object({ to: z.int(), failAfter: z.int().optional() }),
    output: Item,
    errors: { Tired: z.object({ at: z.int() }) },
  }),
  /** Items of 10 kB without an end. */
  endless: serverStream({ output: z.string() }),
  /** An item, and a second when `endless` has ended. */
  quiet: serverStream({ output: z.string() }),
  collect: clientStream({ items: Item, output: z.int() }),
});

/** An implementation of `Counter`; `made` counts the items of `endless`, and `isOver` settles at its end. */
export function counter() {
  let over = () => {};
  const seen = {
    made: 0,
    isOver: new Promise<void>((resolve) => {
      over = resolve;
    }),
  };
  const implementation = implement(Counter, {
    async *count({ to, failAfter }, call) {
      call.headers.set("x-lead", "head");
      call.trailers.set("x-count", String(to));
      for (let n = 1; n <= to; n++) {
        if (failAfter === n - 1) call.fail("Tired", { at: n });
        yield { n, big: BigInt(n) };
      }
    },
    async *endless() {
      try {
        for (;;) {
          seen.made++;
          yield "x".repeat(10_000);
        }
      } finally {
        over();
      }
    },
    async *quiet() {
      yield "first";
      await seen.isOver;
      yield "second";
    },
    collect: () => 0,
  });
  return { implementation, seen };
}

/** The methods of `Greeter`, as `allow` names them. */
export const allMethods: string[] = Object.keys(Greeter.methods).map((name) => `greeter.v1/${name}`);

/** What the handlers of one server have seen. */
export interface Seen {
  readonly notes: string[];
  /** The code of the error by which each signal of `wait` fired. */
  readonly stopped: string[];
  /** Settles when `wait` has begun. */
  readonly waiting: Promise<void>;
}

/** An implementation of `Greeter`, and what it has seen. */
export function greeter() {
  let begun = () => {};
  const waiting = new Promise<void>((resolve) => {
    begun = resolve;
  });
  const seen: Seen & { stopped: string[] } = { notes: [], stopped: [], waiting };
  const implementation = implement(Greeter, {
    greet({ name }, call) {
      if (name === "taken") return call.fail("NameIsTaken", { by: "Ada", since: new Date(0) });
      call.headers.set("x-lead", "head");
      call.trailers.set("x-cost", "3").set("x-raw", Uint8Array.of(251, 255)).set("set-length", "ü");
      call.trailers.set("connection", "close");
      return { text: `Hello, ${name}` };
    },
    fail({ code }) {
      throw new RpcError({
        code: code as RpcCode,
        message: `${code} at tcp://10.0.0.7:7400`,
        ...(code === "unavailable" ? { retryAfterMs: 1500 } : {}),
      });
    },
    wait: (_, call) =>
      new Promise((_resolve, reject) => {
        call.signal.addEventListener("abort", () => {
          seen.stopped.push((call.signal.reason as RpcError).code);
          reject(call.signal.reason);
        });
        begun();
      }),
    ping() {},
    note({ text }) {
      seen.notes.push(text);
    },
    echoMetadata: (_, call) =>
      Object.fromEntries(
        [...call.metadata].map(([name, value]) => [
          name,
          typeof value === "string" ? value : `bytes ${[...value].join(" ")}`,
        ]),
      ),
    beyond: (value) => ({
      ...value,
      kinds: [value.big, value.at, value.raw, value.map, value.set]
        .map((one) => Object.prototype.toString.call(one))
        .join(" "),
    }),
    any: (value) => value,
  });
  return { implementation, seen };
}
