import { getEventListeners } from "node:events";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import {
  type CallOptions,
  type Client,
  clientStream,
  duplexStream,
  implement,
  type Middleware,
  oneWay,
  serverStream,
  service,
  unary,
} from "cinnabar";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { pair } from "../matrix/pair.ts";
import { transports } from "../matrix/providers.ts";
import { until } from "../matrix/wait.ts";

setFlagsFromString("--expose-gc");
const gc = runInNewContext("gc") as () => void;

const input = z.object({ how: z.enum(["well", "throws", "hangs"]) });
const items = { input, items: z.string(), output: z.string() };
const All = service("all.v1", {
  once: unary({ input, output: z.string(), idempotent: true }),
  replayed: unary({ input, output: z.string(), replay: true }),
  tell: oneWay({ input }),
  items: serverStream({ input, output: z.string() }),
  sum: clientStream(items),
  both: duplexStream(items),
});
type How = z.infer<typeof input>["how"];
type Given = { readonly signal: AbortSignal; readonly timeoutMs: number };

async function end(how: How, signal: AbortSignal): Promise<string> {
  if (how === "throws") throw new Error("it fails");
  if (how === "hangs")
    await new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve(), { once: true }));
  return "well";
}
const work = implement(All, {
  once: ({ how }, { signal }) => end(how, signal),
  replayed: ({ how }, { signal }) => end(how, signal),
  tell: ({ how }, { signal }) => end(how, signal).then(() => {}),
  async *items({ how }, { signal }) {
    yield await end(how, signal);
  },
  sum: (_items, { input: { how }, signal }) => end(how, signal),
  async *both(_items, { input: { how }, signal }) {
    yield await end(how, signal);
  },
});

async function read(stream: AsyncIterable<unknown>): Promise<void> {
  for await (const _ of stream);
}

const middleware: Middleware[] = [(_call, next) => next()];

/** All ways to make a call with a signal. */
const kinds: Readonly<Record<string, (all: Client<typeof All>, how: How, given: Given) => Promise<unknown>>> =
  {
    "a unary call": (all, how, given) => all.once({ how }, given),
    "a result": (all, how, given) => all.once.result({ how }, given),
    "a retried call": (all, how, given) => all.once({ how }, { ...given, retry: { attempts: 2 } }),
    "a call with replay": (all, how, given) => all.replayed({ how }, { ...given, retry: { attempts: 2 } }),
    "a one-way call": (all, how, given) => all.tell({ how }, given),
    "a server stream": (all, how, given) => read(all.items({ how }, given)),
    "a client stream": (all, how, given) => all.sum({ how }, ["x"], given),
    "a client stream that is written": async (all, how, given) => {
      const writer = all.sum.open({ how }, given);
      return writer.end();
    },
    "a duplex stream": (all, how, given) => read(all.both({ how }, ["x"], given)),
    "a duplex stream that is written": async (all, how, given) => {
      const stream = all.both.open({ how }, given);
      await Promise.all([stream.end(), read(stream)]);
    },
  };
for (const [name, make] of Object.entries({ ...kinds }))
  Object.assign(kinds, {
    [`${name}, through middleware`]: (all: Client<typeof All>, how: How, given: CallOptions & Given) =>
      make(all, how, { ...given, middleware } as Given),
  });

describe.each(transports)("over $name, the signal of a call", (provider) => {
  it.each(Object.keys(kinds))("has no listener when %s has ended, however that was", async (name) => {
    const make = kinds[name] as (typeof kinds)[string];
    const { api, peer } = await pair(provider, [work], {
      endsHard: true,
      server: { onHandlerError: () => {} },
    });
    const all = api(All);
    const listeners = (signal: AbortSignal) => getEventListeners(signal, "abort").length;
    const ended = async (how: How, timeoutMs: number, then: (abort: () => void) => void = () => {}) => {
      const controller = new AbortController();
      const signal = AbortSignal.any([controller.signal, AbortSignal.timeout(60_000)]);
      const made = make(all, how, { signal, timeoutMs }).catch(() => {});
      then(() => controller.abort());
      await made;
      await until(() => listeners(signal) === 0, "nobody listens any more");
      // A second call listens anew.
      const again = make(all, "well", { signal, timeoutMs: 10_000 });
      await again.catch(() => {});
      await until(() => listeners(signal) === 0, "nobody listens any more");
    };
    await ended("well", 10_000);
    await ended("throws", 10_000);
    await ended("hangs", 20);
    await ended("hangs", 10_000, (abort) => setImmediate(abort));
    await ended("well", 10_000, (abort) => abort());
    await ended("hangs", 10_000, () => setImmediate(() => void peer.close()));
  });

  it("is kept by no call that has ended", async () => {
    const { api } = await pair(provider, [work]);
    const shutdown = new AbortController();
    const refs: WeakRef<AbortSignal>[] = [];
    // A frame of its own: the last signal would stay in this one.
    const call = async (make: (typeof kinds)[string]) => {
      const signal = AbortSignal.any([shutdown.signal, AbortSignal.timeout(600_000)]);
      refs.push(new WeakRef(signal));
      await make(api(All), "well", { signal, timeoutMs: 10_000 });
    };
    for (const make of Object.values(kinds)) await call(make);
    expect(refs).toHaveLength(Object.keys(kinds).length);
    // What runs the test may keep the newest.
    refs.pop();
    await until(() => {
      gc();
      return refs.every((ref) => ref.deref() === undefined);
    }, "all signals are collected");
  });
});
