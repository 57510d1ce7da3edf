import { AsyncLocalStorage } from "node:async_hooks";
import { implement, service, unary } from "cinnabar";
import { BulkStream, bulkStream, readable } from "cinnabar-bulk";
import { expect, it, vi } from "vitest";
import { z } from "zod";
import { pair } from "../../../test/matrix/pair.ts";
import { providers } from "../../../test/matrix/providers.ts";

const Takes = service("takes.v1", {
  take: unary({ input: z.object({ data: bulkStream("read") }), output: z.number() }),
});

it("the requests of a byte stream are nobody's calls: no middleware has them, no count and no log", async () => {
  const [mem] = providers;
  if (mem === undefined) expect.fail("there is no provider");
  const seen: string[] = [];
  const lines: unknown[] = [];
  const note = (...line: unknown[]) => void lines.push(...line);
  const see = ({ method }: { readonly method: string }, next: () => unknown) => {
    seen.push(method);
    return next();
  };
  const watching = {
    slowCallMs: 1,
    logger: { debug: note, info: note, warn: note, error: note } as never,
    middleware: { client: [see], server: [see] } as never,
  };
  const { api, client, server } = await pair(
    mem,
    [
      implement(Takes, {
        async take({ data }, call) {
          let bytes = 0;
          for await (const piece of readable(call, data)) bytes += piece.byteLength;
          return bytes;
        },
      }),
    ],
    { server: watching, client: watching },
  );
  const ended: string[] = [];
  for (const engine of [client, server]) engine.on("callEnded", ({ method }) => ended.push(method));
  const data = new BulkStream(client, "read", { chunkBytes: 4096 });
  const answer = api(Takes).take({ data });
  const writer = data.writable.getWriter();
  for (let i = 0; i < 20; i++) await writer.write(new Uint8Array(4096));
  await writer.close();
  expect(await answer).toBe(20 * 4096);
  expect(seen).toEqual(["takes.v1/take", "takes.v1/take"]);
  expect(new Set(ended)).toEqual(new Set(["takes.v1/take"]));
  expect(JSON.stringify(lines)).not.toContain("cinnabar.streams.v1");
  expect(server.stats().counters).toMatchObject({ callsStarted: 0, callsSucceeded: 0, requestsStarted: 1 });
  expect(client.stats().counters).toMatchObject({ callsStarted: 1, requestsStarted: 0 });
});

it("a handler that reads a byte stream begins no async context, which would make all promises dearer", async () => {
  // Fresh modules: others in this process may have asked for contexts.
  vi.resetModules();
  const { Engine, implement, service, unary } = await import("cinnabar/standard");
  const { BulkStream, bulkStream, readable } = await import("cinnabar-bulk/standard");
  const entered = vi.spyOn(AsyncLocalStorage.prototype, "enterWith");
  const ran = vi.spyOn(AsyncLocalStorage.prototype, "run");
  const Reads = service("reads.v1", { read: unary({ input: bulkStream("read") }), ask: unary() });
  const reads = implement(Reads, {
    async read(stream, call) {
      for await (const _ of readable(call, stream));
    },
    ask: (_, call) => void call.caller,
  });
  await using server = await Engine.open({ listen: "mem://no-context", serve: [reads] });
  await using client = await Engine.open();
  const api = (await client.connect(server.urls[0] as string)).client(Reads, { inherit: false });
  const stream = new BulkStream(client, "read", { chunkBytes: 4096 });
  const answer = api.read(stream);
  await stream.writable.close();
  await answer;
  expect([entered.mock.calls.length, ran.mock.calls.length]).toEqual([0, 0]);
  await api.ask();
  expect(entered.mock.calls.length).toBe(1);
});
