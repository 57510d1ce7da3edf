import {
  clientStream,
  error as declare,
  implement,
  isError,
  RpcError,
  type Schema,
  serverStream,
  service,
  unary,
} from "cinnabar";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { pair } from "../matrix/pair.ts";
import { transports } from "../matrix/providers.ts";
import { failure, until } from "../matrix/wait.ts";

const Fail = service("fail.v1", {
  run: unary({
    input: z.unknown(),
    output: z.unknown(),
    errors: {
      NotFound: declare({ data: z.object({ id: z.string() }), code: "not_found" }),
      AlreadyExists: z.object({ id: z.string() }),
      Full: declare({ code: "resource_exhausted", message: "all 4 places are taken" }),
      Busy: z.object({ load: z.number() }),
      Gone: z.void(),
      Late: z.object({ at: z.number() }).refine(async ({ at }) => at > 0),
    },
  }),
});

type Run = Parameters<typeof implement<typeof Fail>>[1]["run"];
const failing = (run: Run) => implement(Fail, { run });

const odd = { Odd: declare({ data: z.any(), code: "failed_precondition" }) };
const Unsendable = service("unsendable.v1", {
  declared: unary({ errors: odd }),
  items: serverStream({ output: z.number(), errors: odd }),
});

/** The same service as a client knows it that was built against a looser contract. */
const Loose = service("strict.v1", { run: unary({ input: z.unknown(), output: z.unknown() }) });
const Strict = service("strict.v1", {
  run: unary({ input: z.object({ n: z.number() }), output: z.object({ n: z.number() }) }),
});

describe.each(transports)("a failing call over $name", (provider) => {
  it("brings a declared error with its data", async () => {
    const { api } = await pair(provider, [
      failing((_, call) => call.fail("NotFound", { id: "x", extra: 1 } as never)),
    ]);
    const { run } = api(Fail);
    const error = await failure(run(1));
    expect(error).toMatchObject({
      code: "not_found",
      reason: "NotFound",
      data: { id: "x" },
      origin: "remote",
      method: "fail.v1/run",
      retryable: false,
    });
    expect(error.callId).toBeGreaterThan(0);
    expect(isError(error, Fail, "run", "NotFound") && error.data).toEqual({ id: "x" });
    expect(isError(error, Fail, "run", "Busy")).toBe(false);
    const result = await run.result(1);
    expect(result.ok).toBe(false);
    if (!result.ok && result.error.reason === "NotFound") expect(result.error.data.id).toBe("x");
  });

  it("brings the message and the pause that a declared error says", async () => {
    const { api } = await pair(provider, [
      failing((input, call) =>
        input === "bad"
          ? call.fail("Gone", undefined, { message: "" })
          : call.fail("NotFound", { id: "x" }, { message: "no row has the id x", retryAfterMs: 250 }),
      ),
    ]);
    const { run } = api(Fail);
    const error = await failure(run("good"));
    expect(error).toMatchObject({
      code: "not_found",
      reason: "NotFound",
      retryAfterMs: 250,
      retryable: true,
    });
    expect(error.message).toContain("no row has the id x");
    expect(await failure(run("bad"))).toMatchObject({ code: "internal" });
  });

  it("brings declared errors from asynchronous handlers and schemas, without data, and named as no code is", async () => {
    const { api } = await pair(provider, [
      failing(async (input, call) => {
        await new Promise(setImmediate);
        if (input === "gone") return call.fail("Gone");
        return call.fail("Late", { at: 1 });
      }),
    ]);
    const { run } = api(Fail);
    const gone = await failure(run("gone"));
    expect(gone).toMatchObject({ code: "failed_precondition", reason: "Gone" });
    expect("data" in gone).toBe(false);
    expect(await failure(run("late"))).toMatchObject({ reason: "Late", data: { at: 1 } });
  });

  it("gives a declared error the code and the text of the contract, and never a code by its name", async () => {
    const seen: string[] = [];
    const { api } = await pair(
      provider,
      [
        failing((input, { fail }) => {
          if (input === "exists") return fail("AlreadyExists", { id: "x" });
          return input === "full" ? fail("Full") : fail("Full", undefined, { message: "5 wait already" });
        }),
      ],
      {
        server: {
          middleware: {
            server: [
              (_, next) =>
                next().catch((error: RpcError) => {
                  seen.push(error.message);
                  throw error;
                }),
            ],
          },
        },
      },
    );
    const { run } = api(Fail);
    const errors = [await failure(run("exists")), await failure(run("full")), await failure(run("fuller"))];
    expect(errors.map(({ message }) => message)).toEqual([
      "[failed_precondition] declared error AlreadyExists",
      "[resource_exhausted] all 4 places are taken",
      "[resource_exhausted] 5 wait already",
    ]);
    expect(errors.map(({ reason }) => reason)).toEqual(["AlreadyExists", "Full", "Full"]);
    expect(seen).toEqual(errors.map(({ message }) => message));
  });

  it("says internal, and tells only the server why, when a declared error's data does not fit or it is not declared", async () => {
    const told: unknown[] = [];
    const onHandlerError = (error: unknown) => told.push(error);
    const { api } = await pair(
      provider,
      [
        failing((input, call) => {
          const fail = call.fail as (reason: string, data?: unknown) => never;
          return input === "undeclared" ? fail("Nobody", {}) : fail("Busy", { load: "secret" });
        }),
      ],
      { server: { onHandlerError } },
    );
    const { run } = api(Fail);
    for (const input of ["undeclared", "misfit"]) {
      const error = await failure(run(input));
      expect(error).toMatchObject({ code: "internal", origin: "remote" });
      expect("reason" in error).toBe(false);
      expect(error.message).toBe("[internal] the handler failed");
    }
    expect(told.map(String)).toEqual([
      expect.stringContaining('does not declare the error "Nobody"'),
      expect.stringContaining("data of Busy.load"),
    ]);
  });

  it("says internal for whatever else a handler throws, and tells only the server", async () => {
    const told: { error: unknown; method: string; callId: number }[] = [];
    const thrown = [new TypeError("secret"), "secret", undefined, null, { toString: () => "secret" }];
    const { api } = await pair(
      provider,
      [
        failing((input) => {
          if (input === 0) throw thrown[0];
          return Promise.reject(thrown[input as number]);
        }),
      ],
      { server: { onHandlerError: (error, call) => told.push({ error, ...call }) } },
    );
    const { run } = api(Fail);
    for (let i = 0; i < thrown.length; i++) {
      const error = await failure(run(i));
      expect(error).toMatchObject({ code: "internal", origin: "remote", retryable: false });
      expect(JSON.stringify(error)).not.toContain("secret");
      expect(told[i]).toEqual({ error: thrown[i], method: "fail.v1/run", callId: error.callId, began: true });
    }
  });

  it("survives a listener for handlers' errors that throws itself", async () => {
    const { api } = await pair(provider, [failing(() => Promise.reject(new Error("first")))], {
      server: {
        onHandlerError() {
          throw new Error("second");
        },
      },
    });
    for (let i = 0; i < 3; i++) expect(await failure(api(Fail).run(i))).toMatchObject({ code: "internal" });
  });

  it("keeps code, text and retry advice of an RpcError that a handler throws, and never its cause", async () => {
    const { api } = await pair(provider, [
      failing((input) => {
        throw new RpcError({
          code: input as "aborted",
          message: "come back later",
          cause: new Error("secret"),
          ...(input === "resource_exhausted" ? { retryAfterMs: 250 } : {}),
        });
      }),
    ]);
    const { run } = api(Fail);
    const error = await failure(run("aborted"));
    expect(error).toMatchObject({ code: "aborted", origin: "remote", retryable: false });
    expect(error.message).toBe("[aborted] come back later");
    expect(error.cause).toBeUndefined();
    expect(await failure(run("unavailable"))).toMatchObject({ code: "unavailable", retryable: true });
    expect(await failure(run("resource_exhausted"))).toMatchObject({ retryAfterMs: 250, retryable: true });
    for (const code of ["cancelled", "deadline_exceeded", "data_loss", "unauthenticated"]) {
      expect(await failure(run(code))).toMatchObject({ code, origin: "remote" });
    }
  });

  it("passes on a nested call's error without the reason and data of another contract", async () => {
    const Inner = service("inner.v1", {
      get: unary({
        errors: {
          NotFound: declare({ data: z.object({ secret: z.string() }), code: "not_found" }),
          Odd: z.string(),
        },
      }),
      odd: unary({ errors: { Odd: z.string() } }),
    });
    const inner = await pair(provider, [
      implement(Inner, {
        get: (_, call) => call.fail("NotFound", { secret: "s" }),
        odd: (_, call) => call.fail("Odd", "secret"),
      }),
    ]);
    const nested = inner.api(Inner);
    const { api } = await pair(provider, [
      failing((input) => (input === "odd" ? nested.odd() : nested.get()) as Promise<unknown>),
    ]);
    const error = await failure(api(Fail).run(1));
    expect(error).toMatchObject({ code: "not_found", origin: "remote", method: "fail.v1/run" });
    expect([error.reason, error.data]).toEqual([undefined, undefined]);
    const odd = await failure(api(Fail).run("odd"));
    expect(odd).toMatchObject({ code: "failed_precondition" });
    expect([odd.reason, odd.data]).toEqual([undefined, undefined]);
  });

  it("keeps the declared reason of an RpcError whose data fit", async () => {
    const { api } = await pair(provider, [
      failing(() => {
        throw new RpcError({ code: "aborted", message: "m", reason: "Busy", data: { load: 3, extra: 1 } });
      }),
    ]);
    expect(await failure(api(Fail).run(1))).toMatchObject({
      code: "aborted",
      reason: "Busy",
      data: { load: 3 },
    });
  });

  it("refuses an input that breaks the contract before anything is sent", async () => {
    const { api, server, client } = await pair(provider, [implement(Strict, { run: (input) => input })]);
    const { framesSent } = client.stats().counters;
    const error = await failure(api(Strict).run({ n: "x" } as never));
    expect(error).toMatchObject({ code: "invalid_argument", origin: "local", method: "strict.v1/run" });
    expect(error.message).toContain("input.n");
    expect("callId" in error).toBe(false);
    expect(client.stats().counters.framesSent).toBe(framesSent);
    expect(server.stats().counters.requestsStarted).toBe(0);
  });

  it("refuses at the server what a looser client sends, without troubling the handler", async () => {
    let runs = 0;
    const { api } = await pair(provider, [
      implement(Strict, {
        run(input) {
          runs++;
          return input;
        },
      }),
    ]);
    const error = await failure(api(Loose).run({ n: "x" }));
    expect(error).toMatchObject({ code: "invalid_argument", origin: "remote" });
    expect(error.message).toContain("input.n");
    expect(await failure(api(Loose).run(undefined))).toMatchObject({ code: "invalid_argument" });
    expect(runs).toBe(0);
    expect(await api(Loose).run({ n: 1 })).toEqual({ n: 1 });
  });

  it("keeps code, reason and message where its data cannot be encoded, and the owner hears why", async () => {
    const told: { error: unknown; method: string; began: boolean }[] = [];
    const { api } = await pair(
      provider,
      [
        implement(Unsendable, {
          declared: (_, call) => call.fail("Odd", { f() {} }, { message: "it is odd" }),
          async *items(_, call) {
            call.fail("Odd", { f() {} }, { message: "it is odd" });
          },
        }),
      ],
      { server: { onHandlerError: (error, { method, began }) => told.push({ error, method, began }) } },
    );
    const { declared, items } = api(Unsendable);
    const odd = { code: "failed_precondition", reason: "Odd", message: "[failed_precondition] it is odd" };
    expect(await failure(declared())).toMatchObject({ ...odd, origin: "remote" });
    expect(await failure(items().toArray())).toMatchObject(odd);
    const why = "an error could not be sent whole: the value cannot be encoded: it holds a function at .d.f";
    expect(told).toMatchObject([
      { method: "unsendable.v1/declared", began: true },
      { method: "unsendable.v1/items", began: true },
    ]);
    expect(told.map(({ error }) => (error as RpcError).plainMessage)).toEqual([why, why]);
  });

  it("says internal when the output breaks the contract, on either side", async () => {
    const told: unknown[] = [];
    const strict = await pair(provider, [implement(Strict, { run: () => ({ n: "secret" }) as never })], {
      server: { onHandlerError: (error) => told.push(error) },
    });
    const remote = await failure(strict.api(Strict).run({ n: 1 }));
    expect(remote).toMatchObject({ code: "internal", origin: "remote" });
    expect(remote.message).not.toContain("output");
    expect(String(told[0])).toContain("output.n");

    const loose = await pair(provider, [implement(Loose, { run: () => ({ n: "x" }) })]);
    const local = await failure(loose.api(Strict).run({ n: 1 }));
    expect(local).toMatchObject({ code: "internal", origin: "remote" });
    expect(local.message).toContain("output.n");
  });

  it("ends the one call whose schema throws, at whatever place it does", async () => {
    const throwing: Schema<unknown, unknown> = {
      "~standard": {
        version: 1,
        vendor: "by hand",
        validate(value) {
          if (value === "throw") throw new Error("a schema's own trouble");
          if (value === "reject") return Promise.reject(new Error("a schema's own trouble"));
          return { value };
        },
      },
    };
    const any = z.unknown();
    const contract = (input: Schema, output: Schema, data: Schema) =>
      service("throwing.v1", { run: unary({ input, output, errors: { Odd: data } }) });
    const quiet = { onHandlerError: () => {} };
    const served = (Served: ReturnType<typeof contract>) =>
      implement(Served, {
        run: (input, call) => {
          const { fail, give } = input as { fail?: unknown; give?: unknown };
          if (fail !== undefined) return call.fail("Odd", fail);
          return give ?? "fine";
        },
      });
    const Plain = contract(any, any, any);
    for (const trouble of ["throw", "reject"]) {
      // At the client: input, output, data of a declared error.
      const plain = await pair(provider, [served(Plain)]);
      expect(await failure(plain.api(contract(throwing, any, any)).run(trouble))).toMatchObject({
        code: "internal",
        origin: "local",
      });
      const atClient = plain.api(contract(any, throwing, throwing));
      expect(await failure(atClient.run({ give: trouble }))).toMatchObject({ code: "internal" });
      expect(await failure(atClient.run({ fail: trouble }))).toMatchObject({ code: "internal" });
      expect(await atClient.run({})).toBe("fine");
      // At the server, likewise.
      const other = await pair(provider, [served(contract(throwing, throwing, throwing))], { server: quiet });
      const atServer = other.api(Plain);
      expect(await failure(atServer.run(trouble))).toMatchObject({ code: "internal", origin: "remote" });
      expect(await failure(atServer.run({ give: trouble }))).toMatchObject({ code: "internal" });
      expect(await failure(atServer.run({ fail: trouble }))).toMatchObject({ code: "internal" });
      expect(await atServer.run({})).toBe("fine");
    }
  });

  it("refuses values that cannot travel, keeps nothing of them, and goes on", async () => {
    const { api, server } = await pair(provider, [failing((input) => input)]);
    const { run } = api(Fail);
    const circular: Record<string, unknown> = {};
    circular.self = circular;
    let deep: unknown = 1;
    for (let i = 0; i < 150; i++) deep = [deep];
    let abyss: unknown = 1;
    for (let i = 0; i < 100_000; i++) abyss = [abyss];
    const getter = {
      get trouble() {
        throw new Error("a getter's own");
      },
    };
    const wrong = [
      circular,
      deep,
      abyss,
      () => 1,
      { f() {} },
      Symbol("s"),
      { s: Symbol("s") },
      getter,
      2n ** 9000n,
    ];
    for (const input of wrong) {
      const error = await failure(run(input));
      expect(error).toMatchObject({ code: "invalid_argument", origin: "local" });
      expect(error.message).toContain("cannot be encoded");
    }
    // Ahead of it in the same turn, behind it in the same turn: the others' frames are not harmed.
    const [before, bad, after] = await Promise.allSettled([run("before"), run(circular), run("after")]);
    expect([before, bad.status, after]).toEqual([
      { status: "fulfilled", value: "before" },
      "rejected",
      { status: "fulfilled", value: "after" },
    ]);
    expect(server.stats().counters.requestsStarted).toBe(2);
  });

  it("has the functions that await it in its stack: a call, a retried one, an answer and an item of a stream", async () => {
    const refuse = (): never => {
      throw new RpcError({ code: "unavailable", message: "not today" });
    };
    const Streams = service("streams.v1", {
      feed: serverStream({ input: z.number(), output: z.number() }),
      store: clientStream({ items: z.number(), output: z.number() }),
    });
    // biome-ignore lint/correctness/useYield: it fails before it has an item
    const feed = async function* (): AsyncGenerator<number> {
      refuse();
    };
    const { api } = await pair(provider, [failing(refuse), implement(Streams, { feed, store: refuse })]);
    const attempts = { retry: { attempts: 2 } };
    const calls = {
      plain: () => api(Fail).run(1),
      retried: () => api(Fail, attempts).run(1),
      answer: () => api(Streams).store([1]),
      item: () => api(Streams).feed(1).next(),
    };
    async function awaitingInTheProgram(call: () => Promise<unknown>): Promise<void> {
      await call();
    }
    for (const [name, call] of Object.entries(calls)) {
      const { stack } = await failure(awaitingInTheProgram(call));
      expect(stack, name).toContain("[unavailable] not today\n    at ");
      expect(stack, name).toMatch(/at (async )?awaitingInTheProgram/);
    }
    // An input that does not fit is refused inside the call.
    const strict = api(Strict).run({ n: "no" } as never);
    expect(await strict.catch((error: Error) => error.stack)).toContain("errors.test.ts");
  });

  it("says internal for an output or error data that cannot travel, and goes on", async () => {
    const circular: Record<string, unknown> = {};
    circular.self = circular;
    const Odd = service("odd.v1", {
      run: unary({ input: z.string(), output: z.unknown(), errors: { Odd: z.unknown() } }),
    });
    const { api } = await pair(
      provider,
      [
        implement(Odd, {
          run: (input, call) => {
            if (input === "error") return call.fail("Odd", circular);
            return input === "function" ? () => 1 : input === "circular" ? circular : "fine";
          },
        }),
      ],
      { server: { onHandlerError: () => {} } },
    );
    const { run } = api(Odd);
    for (const input of ["circular", "function"]) {
      const error = await failure(run(input));
      expect(error).toMatchObject({ code: "internal", origin: "remote" });
      expect(error.message).toContain("the result could not be sent");
    }
    expect(await failure(run("error"))).toMatchObject({ origin: "remote" });
    expect(await run("x")).toBe("fine");
  });

  it("gives result() the value or the error, and throws for misuse only", async () => {
    const { api } = await pair(provider, [
      failing((input, call) => (input === 1 ? "one" : call.fail("Gone"))),
    ]);
    const { run } = api(Fail);
    expect(await run.result(1)).toEqual({ ok: true, value: "one" });
    expect(await run.result(2)).toMatchObject({ ok: false, error: { reason: "Gone" } });
    expect(() => run(1, { timeout: 5 } as never)).toThrow('unknown option "timeout"');
    expect(() => run(1, { timeoutMs: 0 })).toThrow("timeoutMs");
    expect(() => run(1, { signal: {} as never })).toThrow("signal must be an instance of AbortSignal");
    expect(() => api(Fail, { retries: 1 } as never)).toThrow('unknown option "retries"');
    expect(() => api({} as typeof Fail)).toThrow("made by service()");
  });

  it("carries error data that do not fit a message", async () => {
    const id = "n".repeat(100_000);
    const { api, server } = await pair(provider, [failing((_, call) => call.fail("NotFound", { id }))]);
    expect(await failure(api(Fail).run(1))).toMatchObject({ reason: "NotFound", data: { id } });
    await until(() => server.stats().ports[0]?.regions === 0, "the offered body is let go");
  });
});
