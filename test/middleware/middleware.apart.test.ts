import {
  ContextValues,
  contextKey,
  Engine,
  implement,
  type Middleware,
  type MiddlewareCall,
  RpcError,
  service,
  unary,
} from "cinnabar";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { openEngine, type Pair, type PairOptions, pair } from "../matrix/pair.ts";
import { providers } from "../matrix/providers.ts";
import { failure, until } from "../matrix/wait.ts";

const Echo = service("echo.v1", {
  echo: unary({ input: z.object({ n: z.coerce.number() }), output: z.number(), idempotent: true }),
  hang: unary(),
  throws: unary({ errors: { Full: z.object({ left: z.number() }) } }),
});

const handlers = {
  echo: ({ n }: { n: number }) => n,
  hang: () => new Promise<void>(() => {}),
  throws: (_: unknown, call: { fail(reason: "Full", data: { left: number }): never }) =>
    call.fail("Full", { left: 0 }),
};

const [mem] = providers as [(typeof providers)[number]];

const over = (
  options: PairOptions & { readonly service?: readonly Middleware[] } = {},
  provider = mem,
): Promise<Pair> =>
  pair(provider, [implement(Echo, handlers, { middleware: options.service ?? [] })], options);

/** Writes down that it was entered and left. */
const noting =
  (log: string[], name: string): Middleware =>
  async (_, next) => {
    log.push(name);
    const value = await next();
    log.push(`/${name}`);
    return value;
  };

describe.each(providers)("middleware over $name", (provider) => {
  it("at the server sees a declared error with its code, reason and data", async () => {
    const seen: unknown[] = [];
    const watch: Middleware = async (_, next) => {
      try {
        return await next();
      } catch (error) {
        seen.push(error);
        throw error;
      }
    };
    const { api } = await over({ service: [watch] }, provider);
    expect(await failure(api(Echo).throws())).toMatchObject({ reason: "Full", data: { left: 0 } });
    expect(seen).toEqual([expect.any(RpcError)]);
    expect(seen[0]).toMatchObject({ code: "failed_precondition", reason: "Full", data: { left: 0 } });
  });

  it("runs around call and handler: engine, client, call; engine, service", async () => {
    const log: string[] = [];
    const { api } = await over(
      {
        client: { middleware: { client: [noting(log, "engine 1"), noting(log, "engine 2")] } },
        server: { middleware: { server: [noting(log, "server")] } },
        service: [noting(log, "service")],
      },
      provider,
    );
    const client = api(Echo, { middleware: [noting(log, "client")] });
    expect(await client.echo({ n: 1 }, { middleware: [noting(log, "call")] })).toBe(1);
    const order = ["engine 1", "engine 2", "client", "call", "server", "service"];
    expect(log).toEqual([...order, ...order.toReversed().map((name) => `/${name}`)]);
  });

  it("carries metadata to the server and back", async () => {
    const token: Middleware = async (call, next) => {
      call.metadata.set("authorization", "Bearer secret");
      const value = await next();
      expect(call.trailers.get("x-user")).toBe("secret");
      return value;
    };
    const auth: Middleware = (call, next) => {
      const user = call.metadata.get("authorization")?.slice("Bearer ".length);
      if (user === undefined) throw new RpcError({ code: "unauthenticated", message: "a token is missing" });
      call.trailers.set("x-user", user);
      return next();
    };
    const { api } = await over({ service: [auth] }, provider);
    expect(await failure(api(Echo).echo({ n: 1 }))).toMatchObject({
      code: "unauthenticated",
      origin: "remote",
    });
    expect(await api(Echo, { middleware: [token] }).echo({ n: 1 })).toBe(1);
  });
});

describe("middleware of a client", () => {
  it("sees the call, and may change its input and its output", async () => {
    let seen: Partial<MiddlewareCall> = {};
    const { api, url } = await over();
    const double: Middleware = async (call, next) => {
      const { side, contract, name, method, kind, idempotent, peer, input } = call;
      seen = { side, contract, name, method, kind, idempotent, peer, input };
      expect(call.timeLeftMs).toBeGreaterThan(0);
      expect(call.timeLeftMs).toBeLessThanOrEqual(10_000);
      call.input = { n: 20 };
      return ((await next()) as number) + 1;
    };
    expect(await api(Echo, { middleware: [double] }).echo({ n: 1 })).toBe(21);
    expect(seen).toEqual({
      side: "client",
      contract: Echo,
      name: "echo",
      method: "echo.v1/echo",
      kind: "unary",
      idempotent: true,
      peer: url,
      input: { n: 1 },
    });
  });

  it("may answer itself, and call again", async () => {
    const { api, server } = await over();
    const cached: Middleware = () => 7;
    expect(await api(Echo, { middleware: [cached] }).echo({ n: 1 })).toBe(7);
    expect(server.stats().counters.requestsStarted).toBe(0);
    const twice: Middleware = async (_, next) => ((await next()) as number) + ((await next()) as number);
    expect(await api(Echo, { middleware: [twice] }).echo({ n: 4 })).toBe(8);
    expect(server.stats().counters.requestsStarted).toBe(2);
  });

  it("gets the error of the call, declared ones with their data", async () => {
    const errors: unknown[] = [];
    const keep: Middleware = async (_, next) => {
      try {
        return await next();
      } catch (error) {
        errors.push(error);
        throw error;
      }
    };
    const { api } = await over();
    const error = await failure(api(Echo, { middleware: [keep] }).throws());
    expect(error).toMatchObject({ reason: "Full", data: { left: 0 } });
    expect(errors).toEqual([error]);
    expect(errors[0]).toBe(error);
    expect(await api(Echo, { middleware: [keep] }).throws.result()).toMatchObject({
      ok: false,
      error: { reason: "Full" },
    });
  });

  it("that throws anything else ends the call with internal", async () => {
    const { api } = await over();
    const cause = new TypeError("oops");
    const error = await failure(
      api(Echo, {
        middleware: [
          () => {
            throw cause;
          },
        ],
      }).echo({ n: 1 }),
    );
    expect(error).toMatchObject({ code: "internal", method: "echo.v1/echo", cause });
  });

  it("ends at the deadline of the call, and when the caller gives up", async () => {
    const { api } = await over();
    const reasons: unknown[] = [];
    const stuck: Middleware = (call) =>
      new Promise(() => call.signal.addEventListener("abort", () => reasons.push(call.signal.reason)));
    const client = api(Echo, { middleware: [stuck] });
    const late = await failure(client.echo({ n: 1 }, { timeoutMs: 20 }));
    expect(late).toMatchObject({ code: "deadline_exceeded", method: "echo.v1/echo" });
    expect(late.message).toContain("20 ms have passed in middleware of the client");
    const controller = new AbortController();
    const call = failure(client.echo({ n: 1 }, { signal: controller.signal }));
    controller.abort("enough");
    const cancelled = await call;
    expect(cancelled).toMatchObject({ code: "cancelled", cause: "enough" });
    expect(await failure(client.echo({ n: 1 }, { signal: AbortSignal.abort() }))).toMatchObject({
      code: "cancelled",
    });
    expect(reasons).toEqual([late, cancelled]);
  });

  it("leaves no call open when it is cancelled or late", async () => {
    const { api, server, client } = await over();
    const pass: Middleware = (_, next) => next();
    const through = api(Echo, { middleware: [pass] });
    // It says what the call itself would have said, once the call has left the middleware: far sooner than the deadline.
    await through.echo({ n: 1 });
    expect(await failure(through.hang({ timeoutMs: 500 }))).toMatchObject({
      code: "deadline_exceeded",
      message: expect.stringMatching(/\d+ ms have passed without an answer$/),
      callId: expect.any(Number),
    });
    const controller = new AbortController();
    const call = failure(through.hang({ signal: controller.signal }));
    await until(() => server.stats().calls.in === 1, "the handler runs");
    controller.abort();
    expect(await call).toMatchObject({ code: "cancelled" });
    await until(() => server.stats().calls.in === 0 && client.stats().calls.out === 0, "the calls end");
  });

  it("shares the deadline among the calls that it makes", async () => {
    const { api } = await over();
    let tries = 0;
    const again: Middleware = async (call, next) => {
      while (!call.signal.aborted) {
        tries++;
        await next().catch(() => {});
      }
    };
    const client = api(Echo, { middleware: [again] });
    expect(await failure(client.hang({ timeoutMs: 50 }))).toMatchObject({
      code: "deadline_exceeded",
    });
    // The first has all the time that there is. It may end just before the call does.
    expect(tries).toBeLessThan(4);
  });

  it("has values of its call, from the caller and from other middleware", async () => {
    const trace = contextKey<string[]>("trace");
    const { api } = await over();
    const add =
      (name: string): Middleware =>
      (call, next) => {
        call.context.get(trace)?.push(name);
        return next();
      };
    const context = new ContextValues().set(trace, []);
    await api(Echo, { middleware: [add("a"), add("b")] }).echo({ n: 1 }, { context });
    expect(context.get(trace)).toEqual(["a", "b"]);
  });

  it("may take away what the client says of metadata", async () => {
    const seen: unknown[] = [];
    const look: Middleware = (call, next) => {
      seen.push(call.metadata.toJSON());
      return next();
    };
    const { api } = await over({ service: [look] });
    const remove: Middleware = (call, next) => {
      call.metadata.delete("a");
      return next();
    };
    await api(Echo, { metadata: { a: "1", b: "2" }, middleware: [remove] }).echo({ n: 1 });
    expect(seen).toEqual([{ b: "2" }]);
  });
});

describe("middleware of a server", () => {
  const user = contextKey<{ id: string }>("user");

  it("sees the parsed input, and hands values to the handler", async () => {
    const inputs: unknown[] = [];
    const auth: Middleware = (call, next) => {
      inputs.push(call.input);
      call.context.set(user, { id: call.metadata.get("x-user") ?? "nobody" });
      return next();
    };
    const Who = service("who.v1", {
      who: unary({ input: z.object({ n: z.coerce.number() }), output: z.string() }),
    });
    const who = implement(
      Who,
      { who: (_, call) => call.context.get(user)?.id ?? "unset" },
      { middleware: [auth] },
    );
    const { api } = await pair(mem, [who]);
    expect(await api(Who).who({ n: "5" as never }, { metadata: { "x-user": "ada" } })).toBe("ada");
    expect(inputs).toEqual([{ n: 5 }]);
  });

  it("may refuse, answer itself, and change the output, which is still checked", async () => {
    const shed: Middleware = () => {
      throw new RpcError({ code: "resource_exhausted", message: "too many", retryAfterMs: 5 });
    };
    const refused = await over({ service: [shed] });
    expect(await failure(refused.api(Echo).echo({ n: 1 }))).toMatchObject({
      code: "resource_exhausted",
      retryAfterMs: 5,
    });
    const answering = await over({ service: [() => 9] });
    expect(await answering.api(Echo).echo({ n: 1 })).toBe(9);
    const errors: unknown[] = [];
    const wrong = await over({
      service: [() => "text"],
      server: { onHandlerError: (error) => errors.push(error) },
    });
    expect(await failure(wrong.api(Echo).echo({ n: 1 }))).toMatchObject({ code: "internal" });
    expect(errors).toHaveLength(1);
  });

  it("hears that the caller has gone by its signal", async () => {
    let heard: unknown;
    const listen: Middleware = async (call, next) => {
      call.signal.addEventListener("abort", () => {
        heard = call.signal.reason;
      });
      return next();
    };
    const { api } = await over({ service: [listen], endsHard: true });
    // Its request must have arrived by then, on a slow machine too.
    expect(await failure(api(Echo).hang({ timeoutMs: 300 }))).toMatchObject({
      code: "deadline_exceeded",
    });
    await until(() => heard !== undefined, "the signal fires");
    expect(heard).toMatchObject({ code: expect.stringMatching(/cancelled|deadline_exceeded/) });
  });
});

describe("middleware options", () => {
  it("are checked where they are given", async () => {
    const { api } = await over();
    expect(() => api(Echo, { middleware: {} as never })).toThrow(
      "client: middleware must be an array of functions",
    );
    expect(() => api(Echo).echo({ n: 1 }, { middleware: [7] as never })).toThrow(
      "middleware[0] must be a function",
    );
    expect(() => api(Echo).echo({ n: 1 }, { context: {} as never })).toThrow(
      "context must be an instance of ContextValues",
    );
    expect(() => implement(Echo, handlers, { middleware: [7] as never })).toThrow("middleware[0]");
    await expect(Engine.open({ middleware: { both: [] } as never })).rejects.toThrow(
      'unknown option "middleware.both"',
    );
    await expect(Engine.open({ middleware: { server: 7 } as never })).rejects.toThrow(
      "server must be an array",
    );
    expect(() => contextKey("")).toThrow("non-empty");
  });

  it("of an engine apply to every client of it", async () => {
    const { url } = await over();
    let calls = 0;
    const count: Middleware = (_, next) => {
      calls++;
      return next();
    };
    const engine = await openEngine({ middleware: { client: [count] } });
    const peer = await engine.connect(url);
    await peer.client(Echo).echo({ n: 1 });
    await peer.client(Echo).echo({ n: 1 });
    expect(calls).toBe(2);
  });
});
