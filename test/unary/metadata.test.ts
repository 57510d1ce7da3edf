import { implement, Metadata, metadataKey, RpcError, service, unary } from "cinnabar";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { openEngine, pair } from "../matrix/pair.ts";
import { providers } from "../matrix/providers.ts";
import { failure } from "../matrix/wait.ts";

const Echo = service("echo.v1", {
  echo: unary({ input: z.unknown(), output: z.unknown(), idempotent: true }),
  ping: unary(),
  refuse: unary({ errors: { Full: z.object({ left: z.number() }) } }),
  once: unary({ output: z.number(), replay: true }),
});

/** Answers with what it was sent as metadata, once more in the other direction. */
const mirror = implement(Echo, {
  echo: (value, call) => {
    for (const [name, each] of call.metadata) call.trailers.append(`re-${name}`, each);
    return value;
  },
  ping: (_, call) => {
    for (const [name, each] of call.metadata) call.trailers.append(`re-${name}`, each);
  },
  refuse: (_, call) => {
    call.trailers.set("x-reason", "no room");
    return call.fail("Full", { left: 0 });
  },
  once: (_, call) => {
    call.trailers.set("x-served", "here");
    return call.metadata.size;
  },
});

/** Keeps the metadata of an answer. */
function keeper() {
  const kept: Metadata[] = [];
  return { kept, onTrailers: (metadata: Metadata) => void kept.push(metadata) };
}

describe.each(providers)("metadata over $name", (provider) => {
  it("travels with a request and with its answer, texts and bytes", async () => {
    const { api } = await pair(provider, [mirror]);
    const metadata = { "x-tenant": "acme – grün", "x-key": Uint8Array.of(0, 13, 10, 255) };
    const client = api(Echo);
    const { kept, onTrailers } = keeper();
    await client.echo("value", { metadata, onTrailers });
    await client.ping({ metadata, onTrailers });
    const mirrored = [
      ["re-x-tenant", "acme – grün"],
      ["re-x-key", Uint8Array.of(0, 13, 10, 255)],
    ];
    expect(kept.map((each) => [...each])).toEqual([mirrored, mirrored]);
  });

  it("travels with several values of one name, both ways, alone and merged", async () => {
    const { api } = await pair(provider, [mirror]);
    const { kept, onTrailers } = keeper();
    const metadata = { via: ["a", Uint8Array.of(7), "c"], "x-tenant": "acme" };
    await api(Echo).echo("value", { metadata, onTrailers });
    const client = api(Echo, { metadata: { via: "client", also: ["1", "2"] } });
    await client.ping({ metadata: new Metadata(metadata), onTrailers });
    expect(kept.map((each) => each.getAll("re-via"))).toEqual([metadata.via, metadata.via]);
    expect(kept.map((each) => [each.get("re-via"), each.get("re-x-tenant")])).toEqual([
      ["a", "acme"],
      ["a", "acme"],
    ]);
    expect(kept[1]?.getAll("re-also")).toEqual(["1", "2"]);
  });

  it("travels with inputs and outputs too long for a message", async () => {
    const { api } = await pair(provider, [mirror]);
    const { kept, onTrailers } = keeper();
    const long = "x".repeat(100_000);
    expect(await api(Echo).echo(long, { metadata: { a: "b".repeat(8000) }, onTrailers })).toBe(long);
    expect(kept[0]?.get("re-a")).toHaveLength(8000);
  });

  it("travels with retried calls, and with calls that are known again", async () => {
    const { api } = await pair(provider, [mirror]);
    const { kept, onTrailers } = keeper();
    const client = api(Echo, { retry: { attempts: 3 }, metadata: { a: "1" } });
    expect(await client.once({ onTrailers, metadata: { b: "2" } })).toBe(2);
    expect(await client.echo("again", { onTrailers })).toBe("again");
    expect(kept.map((metadata) => [...metadata])).toEqual([[["x-served", "here"]], [["re-a", "1"]]]);
  });

  it("comes with an error", async () => {
    const { api } = await pair(provider, [mirror]);
    const { kept, onTrailers } = keeper();
    const error = await failure(api(Echo).refuse({ onTrailers }));
    expect(error).toMatchObject({ reason: "Full", data: { left: 0 } });
    expect(error.trailers?.get("x-reason")).toBe("no room");
    expect(kept[0]?.get("x-reason")).toBe("no room");
  });

  it("of a client is in each call, and a call's own replaces it", async () => {
    const { api } = await pair(provider, [mirror]);
    const { kept, onTrailers } = keeper();
    const client = api(Echo, { metadata: { a: "client", b: "client" } });
    await client.ping({ onTrailers });
    await client.ping({ onTrailers, metadata: new Metadata({ b: "call", c: "call" }) });
    expect(kept.map((metadata) => metadata.toJSON())).toEqual([
      { "re-a": "client", "re-b": "client" },
      { "re-a": "client", "re-b": "call", "re-c": "call" },
    ]);
  });

  it("may be the Headers of fetch: of a client, and of a call, alone and merged", async () => {
    const { api } = await pair(provider, [mirror]);
    const { kept, onTrailers } = keeper();
    const headers = new Headers({ B: "call" });
    await api(Echo).ping({ onTrailers, metadata: headers });
    await api(Echo, { metadata: new Headers({ A: "client" }) }).ping({
      onTrailers,
      metadata: headers,
    });
    expect(kept.map((metadata) => metadata.toJSON())).toEqual([
      { "re-b": "call" },
      { "re-a": "client", "re-b": "call" },
    ]);
    const pairs = [["b", "call"]] as never;
    expect(() => api(Echo).ping({ metadata: pairs })).toThrow("a Map or Headers");
    expect(() => api(Echo, { metadata: pairs })).toThrow("a Map or Headers");
  });
});

const [mem] = providers as [(typeof providers)[number]];

describe("metadata", () => {
  it("is refused at once when an entry is malformed, and fails the call beyond a limit", async () => {
    const { api, server } = await pair(mem, [mirror]);
    expect(() => api(Echo, { metadata: { Upper: "" } })).toThrow('client: metadata: the name "Upper"');
    expect(() => api(Echo).ping({ metadata: { a: "x\n" } })).toThrow('the value of "a"');
    expect(() => api(Echo).ping({ metadata: 7 as never })).toThrow("call: metadata must be");
    expect(() => api(Echo).ping({ onTrailers: 7 as never })).toThrow("onTrailers must be a function");
    const error = await failure(api(Echo).ping({ metadata: { a: "x".repeat(9000) } }));
    expect(error).toMatchObject({ code: "invalid_argument", notExecuted: true });
    expect(error.message).toContain("8192 bytes");
    expect(() => api(Echo).ping({ metadata: { a: ["x", 7 as never] } })).toThrow(
      'the value of "a" must be a string or a Uint8Array, or an array of them',
    );
    const many = await failure(api(Echo).ping({ metadata: { a: new Array(65).fill("") } }));
    expect([many.code, many.message]).toEqual(["invalid_argument", expect.stringContaining("64 entries")]);
    expect(server.stats().counters.requestsStarted).toBe(0);
  });

  it("of an answer beyond a limit fails the call and names the limit", async () => {
    const big = implement(Echo, {
      echo: (_, call) => void call.trailers.set("a", "x".repeat(9000)),
      ping: () => {},
      refuse: (_, call) => call.fail("Full", { left: 1 }),
      once: () => 1,
    });
    const { api } = await pair(mem, [big]);
    const error = await failure(api(Echo).echo(1));
    expect(error).toMatchObject({ code: "invalid_argument" });
    expect(error.message).toContain("8192 bytes");
  });

  it("is read by a typed key, whose schema refuses what does not fit", async () => {
    const attempt = metadataKey("x-attempt", z.coerce.number().int().min(1));
    const read = implement(Echo, {
      echo: (_, call) => call.metadata.get(attempt),
      ping: () => {},
      refuse: (_, call) => call.fail("Full", { left: 1 }),
      once: () => 1,
    });
    const { api } = await pair(mem, [read]);
    expect(await api(Echo).echo(1, { metadata: { "x-attempt": "3" } })).toBe(3);
    expect(await api(Echo).echo(1)).toBeUndefined();
    const error = await failure(api(Echo).echo(1, { metadata: { "x-attempt": "none" } }));
    expect(error).toMatchObject({ code: "invalid_argument", origin: "remote" });
    expect(error.message).toContain('metadata "x-attempt"');
    expect(() => metadataKey("X", z.string())).toThrow("lower-case ASCII");
  });

  it("of a listener that throws fails its call alone", async () => {
    const { api } = await pair(mem, [mirror]);
    const thrown = new Error("no");
    const onTrailers = () => {
      throw thrown;
    };
    const error = await failure(api(Echo).echo(1, { metadata: { a: "b" }, onTrailers }));
    expect(error).toMatchObject({ code: "internal", cause: thrown });
    expect(await api(Echo).echo(2)).toBe(2);
  });

  it("passes trace context and baggage to the calls of a handler, and nothing else", async () => {
    const inner = await pair(mem, [mirror]);
    const nested = implement(Echo, {
      echo: async () => {
        const { kept, onTrailers } = keeper();
        await new Promise(setImmediate);
        await inner.api(Echo).echo(1, { onTrailers });
        await inner.api(Echo, { retry: { attempts: 2 } }).echo(1, { onTrailers, metadata: { own: "1" } });
        await inner.api(Echo).echo(1, { onTrailers, metadata: { own: "1" }, inherit: false });
        return kept.map((metadata) => metadata.toJSON());
      },
      ping: () => {},
      refuse: (_, call) => call.fail("Full", { left: 1 }),
      once: () => 1,
    });
    const { api } = await pair(mem, [nested]);
    const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    const trace = { traceparent, tracestate: "a=b", baggage: "k=v" };
    const inherited = { "re-traceparent": traceparent, "re-tracestate": "a=b", "re-baggage": "k=v" };
    expect(await api(Echo).echo(1, { metadata: { ...trace, "x-tenant": "acme" } })).toEqual([
      inherited,
      { "re-own": "1", ...inherited },
      { "re-own": "1" },
    ]);
  });

  it("cannot be changed by a handler", async () => {
    const changing = implement(Echo, {
      echo: (_, call) => {
        call.metadata.set("a", "b");
      },
      ping: () => {},
      refuse: (_, call) => call.fail("Full", { left: 1 }),
      once: () => 1,
    });
    const server = await openEngine({ listen: mem.freshUrl(), serve: [changing], onHandlerError: () => {} });
    const client = await openEngine();
    const peer = await client.connect(server.urls[0] as string);
    const error = await failure(peer.client(Echo).echo(1));
    expect(error).toBeInstanceOf(RpcError);
    expect(error.code).toBe("internal");
  });
});
