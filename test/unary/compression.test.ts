import { randomBytes } from "node:crypto";
import {
  bulk,
  type Compression,
  type Engine,
  implement,
  oneWay,
  serverStream,
  service,
  unary,
} from "cinnabar";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { hasZstd } from "../../src/call/compression.ts";
import { pair } from "../matrix/pair.ts";
import { type Provider, transports } from "../matrix/providers.ts";
import { isSecured } from "../matrix/secured.ts";
import { deferred, failure, until } from "../matrix/wait.ts";

const Rows = service("rows.v1", {
  echo: unary({ input: z.unknown(), output: z.unknown(), idempotent: true }),
  make: unary({ input: z.number(), output: z.unknown() }),
  sum: unary({ input: z.object({ rows: z.unknown(), into: bulk("write") }), output: z.number() }),
  fail: unary({ input: z.unknown(), errors: { Bad: z.object({ text: z.string() }) } }),
  note: oneWay({ input: z.unknown() }),
  items: serverStream({ input: z.unknown(), output: z.unknown() }),
  none: unary({ output: z.unknown() }),
});

const rows = (count: number) =>
  Array.from({ length: count }, (_, id) => ({
    id,
    name: `the name of row ${id % 97}`,
    isOpen: id % 2 === 0,
  }));
/** About 450 KB. */
const many = rows(10_000);
const few = rows(3);

const serving = (onNote: (value: unknown) => void = () => {}) =>
  implement(Rows, {
    echo: (input) => input,
    make: (count) => rows(count),
    sum: async ({ into }, call) => call.put(new Uint8Array(into.byteLength).fill(7), into),
    fail: (_, call) => call.fail("Bad", { text: "x".repeat(200_000) }),
    note: (value) => onNote(value),
    async *items(input) {
      yield input;
    },
    none: () => many,
  });

const compressed = ({ counters }: ReturnType<Engine["stats"]>) => counters.bodiesCompressed;
const decompressed = ({ counters }: ReturnType<Engine["stats"]>) => counters.bodiesDecompressed;

describe.skipIf(isSecured)("compression over a sealed session", () => {
  const security = { psk: { identity: "rows", key: Buffer.from("a key of tests: everybody can read it") } };
  const tcp = transports.find(({ scheme }) => scheme === "tcp") as Provider;

  it("is used only where its client has asked for it", async () => {
    const options = { server: { security }, client: { security } };
    const { api, client, server } = await pair(tcp, [serving()], options);
    expect(await api(Rows, { compression: "deflate" }).echo(many)).toEqual(many);
    expect([compressed(client.stats()), compressed(server.stats())]).toEqual([0, 0]);
    const asked = api(Rows, { compression: { format: "deflate", sealed: true } });
    expect(await asked.echo(many)).toEqual(many);
    expect([compressed(client.stats()), compressed(server.stats())]).toEqual([1, 1]);
  });
});

describe.each(transports)("compression over $name", (provider) => {
  const staysHere = ["shm", "mem", "net+unix"].includes(provider.scheme);
  const forms: Compression[] = [
    "deflate",
    { format: "deflate", sealed: true },
    ...(hasZstd ? [{ format: "zstd", sealed: true } as const] : []),
  ];
  /** Whether bodies are compressed: not within a host, and not in a sealed session without being asked. */
  const takes = (compression: Compression) =>
    !staysHere && (!isSecured || (typeof compression === "object" && compression.sealed === true));

  it.each(forms)(
    "packs long inputs and answers, and gives them back as they were: %j",
    async (compression) => {
      const { api, server, client } = await pair(provider, [serving()]);
      const echo = api(Rows, { compression }).echo;
      expect(await echo(many)).toEqual(many);
      const count = takes(compression) ? 1 : 0;
      for (const engine of [server, client])
        expect([compressed(engine.stats()), decompressed(engine.stats())]).toEqual([count, count]);
      const { bytesBeforeCompression, bytesAfterCompression } = client.stats().counters;
      if (count > 0) expect(bytesAfterCompression).toBeLessThan(bytesBeforeCompression / 4);
      // Short ones travel as they are.
      expect(await echo(few)).toEqual(few);
      expect(await echo(undefined)).toBeUndefined();
      // What does not shrink, too.
      const noise = Uint8Array.from(randomBytes(200_000));
      expect(Buffer.compare((await echo(noise)) as Uint8Array, noise)).toBe(0);
      expect([compressed(server.stats()), compressed(client.stats())]).toEqual([count, count]);
    },
  );

  it("packs one direction alone, and by the least length that the client gives", async () => {
    const compression = { format: "deflate", minBytes: 100, sealed: true } as const;
    const { api, server, client } = await pair(provider, [serving()]);
    const calls = api(Rows, { compression });
    expect(await calls.make(50)).toEqual(rows(50));
    expect(await calls.none()).toEqual(many);
    const count = staysHere ? 0 : 2;
    expect([compressed(server.stats()), compressed(client.stats())]).toEqual([count, 0]);
    expect([decompressed(server.stats()), decompressed(client.stats())]).toEqual([0, count]);
  });

  it("is chosen by a call against its client, with middleware, metadata and retries too", async () => {
    const { api, client } = await pair(provider, [serving()]);
    const compression = { format: "deflate", sealed: true } as const;
    const plain = api(Rows);
    const packing = api(Rows, {
      compression,
      metadata: { tenant: "one" },
      retry: { attempts: 2 },
      middleware: [(_, next) => next()],
    });
    await plain.echo(many);
    await packing.echo(many, { compression: false });
    expect(compressed(client.stats())).toBe(0);
    expect(await plain.echo(many, { compression, metadata: { tenant: "two" } })).toEqual(many);
    expect(await packing.echo(many)).toEqual(many);
    expect(compressed(client.stats())).toBe(staysHere ? 0 : 2);
  });

  it("leaves errors, streams, one-way calls and requests with regions as they are", async () => {
    const noted = deferred<unknown>();
    const { api, client, server } = await pair(provider, [serving(noted.resolve)]);
    const calls = api(Rows, { compression: { format: "deflate", minBytes: 1, sealed: true } });
    using region = client.expose(new Uint8Array(64), { access: "write" });
    expect(await calls.sum({ rows: many, into: region })).toBe(64);
    await calls.note(many);
    expect(await noted.promise).toEqual(many);
    const items: unknown[] = [];
    for await (const item of calls.items(many)) items.push(item);
    expect(items).toEqual([many]);
    expect([compressed(client.stats()), compressed(server.stats())]).toEqual([0, 0]);
    expect(await failure(calls.fail(few))).toMatchObject({
      reason: "Bad",
      data: { text: "x".repeat(200_000) },
    });
  });

  it("ends at once by an abort, whatever is being packed", async () => {
    const { api, client } = await pair(provider, [serving()]);
    const calls = api(Rows, { compression: { format: "deflate", sealed: true } });
    const abort = new AbortController();
    const failed = failure(calls.echo(many, { signal: abort.signal }));
    abort.abort();
    // A job of zlib ends in a later turn than the microtasks of this one.
    let turns = 0;
    const counting = setImmediate(() => turns++);
    expect(await failed).toMatchObject({ code: "cancelled" });
    expect(turns).toBe(0);
    clearImmediate(counting);
    await until(() => client.stats().offeredBytes === 0, "what was being packed is let go of");
    expect(await calls.echo(many)).toEqual(many);
  });

  it("is not used where the server refuses it", async () => {
    const { api, client, server } = await pair(provider, [serving()], { server: { compression: false } });
    const calls = api(Rows, { compression: { format: "deflate", sealed: true } });
    expect(await calls.echo(many)).toEqual(many);
    expect([compressed(client.stats()), compressed(server.stats())]).toEqual([0, 0]);
  });

  it("carries many at once, in both directions", async () => {
    const { api } = await pair(provider, [serving()]);
    const calls = api(Rows, { compression: { format: "deflate", minBytes: 1000, sealed: true } });
    const inputs = Array.from({ length: 40 }, (_, index) => rows(20 + 100 * index));
    expect(await Promise.all(inputs.map((input) => calls.echo(input)))).toEqual(inputs);
  });
});
