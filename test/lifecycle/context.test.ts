import { AsyncLocalStorage, executionAsyncResource } from "node:async_hooks";
import {
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
import { openEngine, pair } from "../matrix/pair.ts";
import { transports } from "../matrix/providers.ts";
import { security } from "../matrix/secured.ts";
import { deferred, until } from "../matrix/wait.ts";
import { waits } from "../matrix/waits.ts";

const Where = service("where.v1", {
  here: unary({ output: z.string() }),
  nested: unary({ output: z.string() }),
  hold: unary({ output: z.string() }),
});

describe.each(transports)("over $name, what a user keeps in an AsyncLocalStorage", (provider) => {
  it("is not seen by handlers of others, whoever set the engine going", async () => {
    const storage = new AsyncLocalStorage<string>();
    const where = () => storage.getStore() ?? "nowhere";
    const work = implement(Where, {
      here: where,
      // Its own call sets the engine's turns going, in which others' requests arrive.
      nested: () =>
        storage.run("a handler", async () => {
          await there.here();
          return where();
        }),
      hold: where,
    });
    const { server, api } = await pair(provider, [work]);
    const elsewhere = await openEngine({ listen: provider.freshUrl(), serve: [work] });
    const there = (await server.connect(elsewhere.urls[0] as string)).client(Where);
    for (let round = 0; round < 20; round++) {
      const [mine, handlers, others] = await Promise.all([
        storage.run("a caller", () => api(Where).here()),
        api(Where).nested(),
        api(Where).here(),
      ]);
      expect([mine, handlers, others]).toEqual(["nowhere", "a handler", "nowhere"]);
      // The next caller sets an engine at rest going.
      const turns = () => process.getActiveResourcesInfo().includes("Immediate");
      await until(() => !turns(), "the engines are at rest");
    }
    // What awaits keeps its own.
    expect(await storage.run("a caller", async () => [await api(Where).here(), where()])).toEqual([
      "nowhere",
      "a caller",
    ]);
  });

  it("is not seen by a handler that begins when another ends", async () => {
    const storage = new AsyncLocalStorage<string>();
    const gate = deferred();
    const work = implement(Where, {
      here: () => storage.getStore() ?? "nowhere",
      nested: () => "",
      hold: async () => {
        storage.enterWith("who held the place");
        await gate.promise;
        return "";
      },
    });
    const { server, api } = await pair(provider, [work], {
      server: { admission: { maxConcurrent: 1, ...waits } },
    });
    const held = api(Where).hold();
    await until(() => server.stats().admission.running === 1, "it has the place");
    const waiting = api(Where).here();
    await until(() => server.stats().admission.queued === 1, "the other waits");
    gate.resolve();
    await held;
    expect(await waiting).toBe("nowhere");
  });
});

/** All kinds of methods. Each says who its code sees; `user` is the one whose call it is. */
const input = z.object({ user: z.string() });
const Kinds = service("kinds.v1", {
  once: unary({ input, output: z.string() }),
  tell: oneWay({ input }),
  items: serverStream({ input, output: z.string() }),
  sum: clientStream({ input, items: z.string(), output: z.string() }),
  both: duplexStream({ input, items: z.string(), output: z.string() }),
});

async function all(items: AsyncIterable<string>): Promise<string[]> {
  const seen: string[] = [];
  for await (const item of items) seen.push(item);
  return seen;
}

describe.each(transports)("over $name, who enters an async context", (provider) => {
  const user = new AsyncLocalStorage<string>();
  const here = () => user.getStore() ?? "nobody";
  /** As programs did before there was AsyncLocalStorage. */
  const ofResource = Symbol("user");
  const resource = () => executionAsyncResource() as { [ofResource]?: string };

  /** Calls of a user who is entered among those of nobody, which must not see it. */
  const calls = async (enter: (who: string) => void, where: "middleware" | "handler" | "schema") => {
    const told: string[] = [];
    const entering = (who: string) => {
      const before = resource()[ofResource] ?? here();
      if (who !== "") {
        enter(who);
        resource()[ofResource] = who;
      }
      return before;
    };
    const Checked = service("checked.v1", {
      once: unary({ input: input.refine(({ user: who }) => entering(who) !== ""), output: z.string() }),
    });
    const middleware: Middleware = (call, next) => {
      entering(((call.opening ?? call.input) as { user: string }).user);
      return next();
    };
    const by = (who: string) => (where === "handler" ? entering(who) : here());
    const work = implement(
      Kinds,
      {
        once: ({ user: who }) => by(who),
        tell: ({ user: who }) => void told.push(by(who)),
        async *items({ user: who }) {
          yield by(who);
          yield here();
        },
        sum: async (items, { input: { user: who } }) => {
          const first = by(who);
          await all(items);
          return first;
        },
        async *both(items, { input: { user: who } }) {
          const first = by(who);
          for await (const _ of items) yield first;
        },
      },
      where === "middleware" ? { middleware: [middleware] } : {},
    );
    const checked = implement(Checked, { once: () => here() });
    const { api } = await pair(provider, [work, checked]);
    const kinds = api(Kinds);
    const seen: string[] = [];
    for (let round = 0; round < 10; round++) {
      const made: Promise<unknown>[] = [];
      for (const who of ["ann", "", "", "bob", "", ""]) {
        const note = async (made: Promise<string>) => {
          const said = await made;
          if (who === "") seen.push(said);
        };
        made.push(
          note(where === "schema" ? api(Checked).once({ user: who }) : kinds.once({ user: who })),
          kinds.tell({ user: who }),
          note(all(kinds.items({ user: who })).then(([first]) => first as string)),
          note(kinds.sum({ user: who }, ["x"])),
          note(all(kinds.both({ user: who }, ["x"])).then(([first]) => first as string)),
        );
      }
      await Promise.all(made);
    }
    await until(() => told.length === 60, "all one-way calls have been executed");
    return new Set([...seen, ...(where === "handler" ? told : [])]);
  };

  for (const where of ["middleware", "handler", "schema"] as const)
    it(`in ${where === "middleware" ? where : `the ${where}`} of one call is not seen by another`, async () => {
      expect(await calls((who) => user.enterWith(who), where)).toEqual(new Set(["nobody"]));
    });

  it("in authorize is not seen by a handler, nor by the next request's", async () => {
    const seen = new Set<string>();
    const work = implement(Kinds, {
      once: here,
      tell: () => {},
      async *items() {},
      sum: () => "",
      async *both() {},
    });
    const authorize = () => {
      seen.add(here());
      user.enterWith("ann");
      return true;
    };
    const { api } = await pair(provider, [work], {
      server: { security: { ...security, authorize } },
      client: { security },
    });
    const said = await Promise.all(Array.from({ length: 20 }, () => api(Kinds).once({ user: "" })));
    expect(new Set([...seen, ...said])).toEqual(new Set(["nobody"]));
  });
});

describe.each(transports)("over $name, the async context of a stream", (provider) => {
  const user = new AsyncLocalStorage<string>();
  const here = () => user.getStore() ?? "nobody";
  const running: Middleware = (_call, next) => user.run("ann", next);
  const handlers = {
    once: here,
    tell: () => {},
    async *items() {
      yield here();
      await new Promise(setImmediate);
      yield here();
    },
    sum: async (items: AsyncIterable<string>) => (await all(items)).join(),
    async *both(items: AsyncIterable<string>) {
      yield here();
      for await (const item of items) yield `${item} ${here()}`;
      yield here();
    },
  };

  it("is that of the middleware in whose next() its generator was called", async () => {
    const { api } = await pair(provider, [implement(Kinds, handlers, { middleware: [running] })]);
    expect(await all(api(Kinds).items({ user: "" }))).toEqual(["ann", "ann"]);
    expect(await all(api(Kinds).both({ user: "" }, ["x"]))).toEqual(["ann", "x ann", "ann"]);
  });

  it("is that of its own middleware for items that another one reads", async () => {
    const wrapping: Middleware = async (call, next) => {
      const output = (await user.run("ann", next)) as AsyncIterable<string>;
      if (call.kind !== "serverStream") return output;
      return (async function* () {
        for await (const item of output) yield `${item} by ${here()}`;
      })();
    };
    const outer: Middleware = (_call, next) => user.run("eve", next);
    const { api } = await pair(provider, [implement(Kinds, handlers, { middleware: [outer, wrapping] })]);
    expect(await all(api(Kinds).items({ user: "" }))).toEqual(["ann by eve", "ann by eve"]);
  });

  it("is that of the caller for its items, its headers and its trailers", async () => {
    const work = implement(Kinds, {
      ...handlers,
      once(_input, call) {
        call.headers.set("x-head", "1");
        call.trailers.set("x-tail", "1");
        return "";
      },
      async *items(_input, call) {
        call.headers.set("x-head", "1");
        call.trailers.set("x-tail", "1");
        yield "";
      },
    });
    const { api } = await pair(provider, [work]);
    const between: Middleware = (_call, next) => user.run("middleware", next);
    for (const middleware of [[], [between]])
      for (const retry of [false, { attempts: 2 }] as const) {
        const seen: string[] = [];
        const note = () => void seen.push(here());
        const options = { onHeaders: note, onTrailers: note, middleware, retry };
        await user.run("ann", () => api(Kinds).once({ user: "" }, options));
        await all(user.run("ann", () => api(Kinds).items({ user: "" }, options)));
        expect(seen).toEqual(["ann", "ann", "ann", "ann"]);
      }
    async function* source() {
      yield here();
      await new Promise(setImmediate);
      yield here();
    }
    // The caller of the next call sets the engine's turns going.
    const [sent] = await Promise.all([
      user.run("ann", () => api(Kinds).sum({ user: "" }, source())),
      ...Array.from({ length: 5 }, () => user.run("bob", () => api(Kinds).once({ user: "" }))),
    ]);
    expect(sent).toBe("ann,ann");
  });

  it("is that of the handler for listeners of its signal, and of who adds it for those of a peer", async () => {
    const seen: string[] = [];
    const begun = deferred();
    const work = implement(Kinds, {
      ...handlers,
      once: (_input, call) =>
        user.run("ann", async () => {
          call.signal.addEventListener("abort", () => seen.push(here()));
          begun.resolve();
          await deferred().promise;
          return "";
        }),
    });
    const { peer, api, server } = await pair(provider, [work], { endsHard: true });
    user.run("bob", () => peer.on("lost", () => seen.push(here())));
    const ended = user.run("eve", () => api(Kinds).once.result({ user: "" }, { timeoutMs: 100 }));
    await begun.promise;
    await ended;
    await until(() => seen.length === 1, "the handler's signal has fired");
    await user.run("eve", () => server.close());
    await until(() => seen.length === 2, "the peer is lost");
    expect(seen).toEqual(["ann", "bob"]);
  });
});
