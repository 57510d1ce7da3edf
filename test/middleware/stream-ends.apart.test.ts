import {
  clientStream,
  duplexStream,
  implement,
  type Metadata,
  type Middleware,
  type MiddlewareCall,
  RpcError,
  serverStream,
  service,
} from "cinnabar";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { pair } from "../matrix/pair.ts";
import { providers } from "../matrix/providers.ts";
import { deferred, failure, until } from "../matrix/wait.ts";

const Flow = service("flow.v1", {
  count: serverStream({ output: z.number() }),
  sum: clientStream({ items: z.number(), output: z.number() }),
  echo: duplexStream({ items: z.number(), output: z.number() }),
});

const [mem] = providers as [(typeof providers)[number]];

type Handlers = Parameters<typeof implement<typeof Flow>>[1];

async function* forever(): AsyncGenerator<number> {
  for (let n = 0; ; n++) yield n;
}

/** Streams that go on until they are ended, but for what is given. */
async function over(given: Partial<Handlers> = {}) {
  const flow = implement(Flow, {
    count: forever,
    async sum(items) {
      let sum = 0;
      for await (const item of items) sum += item;
      return sum;
    },
    async *echo(items) {
      yield* items;
    },
    ...given,
  });
  const all = await pair(mem, [flow]);
  const client = (...middleware: Middleware[]) => all.api(Flow, { middleware });
  const ended = () =>
    until(() => all.server.stats().calls.in === 0 && all.client.stats().calls.out === 0, "the streams end");
  return { ...all, flow: client, ended };
}

/** Opens the stream and never gives it to the caller. */
function keeping() {
  const opened = deferred();
  const middleware: Middleware = async (_, next) => {
    const call = next();
    call.catch(() => {});
    opened.resolve();
    return new Promise(() => {});
  };
  return { middleware, opened: opened.promise };
}

async function read(items: AsyncIterable<number>): Promise<number[]> {
  const got: number[] = [];
  for await (const item of items) got.push(item);
  return got;
}

async function* mapped(items: AsyncIterable<number>): AsyncGenerator<number> {
  for await (const item of items) yield item;
}

describe("a stream that middleware of the client has opened", () => {
  it("ends when its caller cancels before it was given the items", async () => {
    const { flow, server, ended } = await over();
    const { middleware, opened } = keeping();
    const stream = flow(middleware).count();
    await opened;
    await until(() => server.stats().calls.in === 1, "it is served");
    stream.cancel();
    expect(await stream.next()).toEqual({ done: true, value: undefined });
    await ended();
  });

  it("ends when its caller cancels before it was given the answer", async () => {
    const { flow, server, ended } = await over({ sum: () => new Promise(() => {}) });
    const { middleware, opened } = keeping();
    const writer = flow(middleware).sum.open();
    const answer = failure(writer.end());
    await opened;
    await until(() => server.stats().calls.in === 1, "it is served");
    writer.cancel("enough");
    expect(await answer).toMatchObject({ code: "cancelled", cause: "enough", method: "flow.v1/sum" });
    await ended();
  });

  it("ends with a break, though the generator around it was never asked for an item", async () => {
    const { flow, server, ended } = await over();
    const wrap: Middleware = async (_, next) => mapped((await next()) as AsyncIterable<number>);
    const stream = flow(wrap).count();
    await until(() => server.stats().calls.in === 1, "it is served");
    await stream.return();
    await ended();
  });

  it("ends with a cancel, though the generator around it waits for an item", async () => {
    const { flow, server, ended } = await over({
      async *count() {
        await new Promise(() => {});
        yield 0;
      },
    });
    const wrap: Middleware = async (_, next) => mapped((await next()) as AsyncIterable<number>);
    const stream = flow(wrap).count();
    const waiting = stream.next();
    await until(() => server.stats().calls.in === 1, "it is served");
    stream.cancel();
    expect(await waiting).toEqual({ done: true, value: undefined });
    await ended();
  });

  it("ends when middleware throws, or gives other items in its place", async () => {
    const { flow, ended } = await over();
    const throws: Middleware = async (_, next) => {
      await next();
      throw new RpcError({ code: "aborted", message: "no" });
    };
    expect(await failure(read(flow(throws).count()))).toMatchObject({ code: "aborted" });
    const instead: Middleware = async (_, next) => {
      await next();
      return [7];
    };
    expect(await read(flow(instead).count())).toEqual([7]);
    await ended();
  });

  it("ends when another one has given the answer", async () => {
    const gates = [deferred<number>(), deferred<number>()];
    let served = 0;
    const { flow, server, ended } = await over({ sum: () => (gates[served++] as (typeof gates)[0]).promise });
    const race: Middleware = (_, next) => Promise.any([next(), next()]);
    const answer = flow(race).sum([]);
    await until(() => server.stats().calls.in === 2, "both are served");
    gates[1]?.resolve(2);
    expect(await answer).toBe(2);
    await ended();
    gates[0]?.resolve(1);
  });
});

describe("items that are sent one by one through middleware", () => {
  it("wait for it, at most 1,024 of them", async () => {
    const gate = deferred();
    const { flow } = await over();
    const held: Middleware = async (_, next) => {
      await gate.promise;
      return next();
    };
    const writer = flow(held).sum.open();
    const sends = Array.from({ length: 1024 }, (_, n) => writer.send(n));
    const tooMany = await failure(writer.send(0));
    expect(tooMany).toMatchObject({ code: "resource_exhausted", origin: "local" });
    expect(tooMany.message).toContain("1024 items of the stream wait to be sent");
    gate.resolve();
    expect(await writer.end()).toBe((1024 * 1023) / 2);
    await Promise.all(sends);
    expect(await failure(writer.send(1))).toMatchObject({ code: "failed_precondition" });
  });

  it("are refused with the error of the stream once that has failed", async () => {
    const { flow } = await over({
      async sum(items) {
        for await (const item of items)
          if (item === 3) throw new RpcError({ code: "out_of_range", message: "not 3" });
        return 0;
      },
      async *echo(items) {
        for await (const item of items) {
          if (item === 3) throw new RpcError({ code: "out_of_range", message: "not 3" });
          yield item;
        }
      },
    });
    const pass: Middleware = (_, next) => next();
    const writer = flow(pass).sum.open();
    const sending = failure(
      (async () => {
        for (;;) await writer.send(3);
      })(),
    );
    expect(await sending).toMatchObject({ code: "out_of_range", message: "[out_of_range] not 3" });
    expect(await failure(writer.end())).toMatchObject({ code: "out_of_range" });
    const duplex = flow(pass).echo.open();
    // Nobody reads, so nobody but who sends hears of it.
    const echoing = failure(
      (async () => {
        for (;;) await duplex.send(3);
      })(),
    );
    expect(await echoing).toMatchObject({ code: "out_of_range" });
    expect(await failure(duplex.next())).toMatchObject({ code: "out_of_range" });
  });

  it("are refused after a cancel, and those that wait are told why", async () => {
    const { flow } = await over();
    const { middleware } = keeping();
    const stuck: Middleware = () => new Promise(() => {});
    for (const each of [middleware, stuck]) {
      const writer = flow(each, stuck).sum.open();
      const waiting = failure(writer.send(1));
      writer.cancel("enough");
      expect(await waiting).toMatchObject({ code: "cancelled", cause: "enough" });
      expect(await failure(writer.send(2))).toMatchObject({ code: "cancelled", cause: "enough" });
    }
  });

  it("tell middleware of a cancel by an error, not by their end", async () => {
    const read = deferred<unknown>();
    const { flow } = await over();
    const collect: Middleware = async (call: MiddlewareCall) => {
      try {
        for await (const _ of call.input as AsyncIterable<number>);
        read.resolve("a clean end");
      } catch (error) {
        read.resolve((error as RpcError).code);
      }
      return 0;
    };
    const writer = flow(collect).sum.open();
    await writer.send(1);
    writer.cancel();
    expect(await read.promise).toBe("cancelled");
  });
});

describe("metadata of the answer through middleware", () => {
  it("is told once, when the caller's call settles, with what its last answer brought", async () => {
    let served = 0;
    const answer = (call: { trailers: Metadata }) => {
      call.trailers.set("try", String(++served));
      if (served % 2 === 1) throw new RpcError({ code: "unavailable", message: "not yet" });
    };
    const { flow } = await over({
      async sum(_, call) {
        answer(call);
        return 1;
      },
      // biome-ignore lint/correctness/useYield: the second attempt ends at once
      async *count(_, call) {
        answer(call);
      },
    });
    // A stream that fails before its first item rejects `next()`, as a call does.
    const twice: Middleware = async (_, next) => (await next().catch(() => undefined)) ?? next();
    const told: unknown[] = [];
    const onTrailers = (metadata: Metadata) => void told.push(metadata.get("try"));
    expect(await flow(twice).sum([], { onTrailers })).toBe(1);
    expect(told).toEqual(["2"]);
    expect(await read(flow(twice).count({ onTrailers }))).toEqual([]);
    expect(told).toEqual(["2", "4"]);
    const throwing = () => {
      throw new Error("mine");
    };
    expect(await failure(flow(twice).sum([], { onTrailers: throwing }))).toMatchObject({
      code: "internal",
      message: "[internal] onTrailers threw",
    });
    expect(await failure(read(flow(twice).count({ onTrailers: throwing })))).toMatchObject({
      code: "internal",
    });
  });
});
