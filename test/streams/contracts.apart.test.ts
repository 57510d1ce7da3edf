import {
  type AnyService,
  clientStream,
  duplexStream,
  type Implementation,
  implement,
  oneWay,
  serverStream,
  service,
  unary,
} from "cinnabar";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { pair } from "../matrix/pair.ts";
import { transports } from "../matrix/providers.ts";
import { failure } from "../matrix/wait.ts";

const text = z.string();
const kinds = {
  "a unary method": unary({ input: text, output: text }),
  "a server stream": serverStream({ input: text, output: text }),
  "a client stream": clientStream({ items: text, output: text }),
  "a duplex stream": duplexStream({ items: text, output: text }),
  "a one-way method": oneWay({ input: text }),
} as const;
type Kind = keyof typeof kinds;
const names = Object.keys(kinds) as Kind[];
const serviceOf = (kind: Kind): AnyService => service("kinds.v1", { run: kinds[kind] as never });

function served(kind: Kind): Implementation {
  return implement(serviceOf(kind), { run: () => expect.fail("no handler may start") } as never);
}

/** Calls the method as its client has it. */
async function call(client: unknown, kind: Kind): Promise<unknown> {
  const { run } = client as { run: (...args: unknown[]) => unknown };
  if (kind === "a server stream") return (run("a") as AsyncIterator<unknown>).next();
  if (kind === "a duplex stream") return (run(["a"]) as AsyncIterator<unknown>).next();
  if (kind === "a client stream") return run(["a"]);
  return run("a");
}

describe.each(transports.slice(0, 1))(
  "contracts that differ in the kind of a method, over $name",
  (provider) => {
    it.each(names)(
      "is an error that names both, before anything is sent: the server has %s",
      async (theirs) => {
        const { peer, server } = await pair(provider, [served(theirs)]);
        for (const mine of names.filter((name) => name !== theirs)) {
          const error = await failure(call(peer.client(serviceOf(mine)), mine));
          expect(error).toMatchObject({ code: "unimplemented", notExecuted: true, origin: "local" });
          expect(error.message).toContain(
            `serves "kinds.v1/run" as ${theirs}, this contract has it as ${mine}`,
          );
        }
        expect(server.stats().counters.requestsStarted).toBe(0);
      },
    );
  },
);

// What happens to a call whose two sides have different versions of a contract: docs/guide/streams.md has the table.
describe("contracts that differ in the fields of a method", () => {
  const provider = transports[0] as (typeof transports)[number];
  const before = z.object({ id: z.string() });
  const after = z.object({ id: z.string(), note: z.string() });
  const optional = z.object({ id: z.string(), note: z.string().optional() });
  const of = (input: z.ZodType, output: z.ZodType, errors = {}): AnyService =>
    service("items.v1", { get: unary({ input, output, errors }) });

  async function ask(client: AnyService, server: AnyService, input: unknown, answer: unknown) {
    const { peer } = await pair(provider, [
      implement(server, {
        get: (given: unknown, c: { fail(r: string, d: unknown): never }) =>
          answer === "fail" ? c.fail("Gone", { at: 7 }) : { ...(answer as object), given },
      } as never),
    ]);
    const { get } = peer.client(client) as unknown as { get(input: unknown): Promise<unknown> };
    return get(input);
  }
  const loose = (shape: z.ZodObject) => shape.extend({ given: z.unknown() });

  it("drops a field that only the client has", async () => {
    const value = await ask(
      of(after, loose(before)),
      of(before, loose(before)),
      { id: "a", note: "n" },
      { id: "a" },
    );
    expect(value).toEqual({ id: "a", given: { id: "a" } });
  });

  it("refuses a request without a field that only the server has, and takes one where that is optional", async () => {
    const asked = ask(of(before, loose(before)), of(after, loose(before)), { id: "a" }, { id: "a" });
    expect(await failure(asked)).toMatchObject({ code: "invalid_argument", origin: "remote" });
    const value = await ask(of(before, loose(before)), of(optional, loose(before)), { id: "a" }, { id: "a" });
    expect(value).toMatchObject({ given: { id: "a" } });
  });

  it("leaves a new field of the output to an old client, and misses one that an old server does not send", async () => {
    const value = await ask(
      of(before, loose(before)),
      of(before, loose(after)),
      { id: "a" },
      { id: "a", note: "new" },
    );
    expect(value).toMatchObject({ id: "a", note: "new" });
    const asked = ask(of(before, loose(after)), of(before, loose(before)), { id: "a" }, { id: "a" });
    expect(await failure(asked)).toMatchObject({ code: "internal", origin: "remote" });
  });

  it("tells an old client of a new declared error by its code, without reason and data", async () => {
    const withError = of(before, loose(before), { Gone: z.object({ at: z.number() }) });
    const known = await failure(ask(withError, withError, { id: "a" }, "fail"));
    expect(known).toMatchObject({ reason: "Gone", data: { at: 7 } });
    const error = await failure(ask(of(before, loose(before)), withError, { id: "a" }, "fail"));
    expect(error.code).toBe(known.code);
    expect(error.reason).toBeUndefined();
  });

  it("names the method that a server does not have, and the service", async () => {
    const { peer } = await pair(provider, [
      implement(of(before, before), { get: (input: unknown) => input } as never),
    ]);
    const More = service("items.v1", { put: unary({}) });
    const error = await failure(peer.client(More).put());
    expect(error).toMatchObject({ code: "unimplemented", notExecuted: true });
    expect(error.message).toContain('no method "items.v1/put"');
    const Next = service("items.v2", { get: unary({}) });
    expect((await failure(peer.client(Next).get())).message).toContain('no service "items.v2"');
    expect(peer.services).toEqual(["items.v1"]);
  });
});
