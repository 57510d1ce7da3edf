import type { CallOptions, Client, EngineOptions, Metadata, Peer } from "cinnabar";
import { expect } from "vitest";
import { isLong } from "../matrix/long.ts";
import { verbsDevices } from "../matrix/verbs.ts";
import { initialKey, itemBytes, type TestService, trailingKey, UnimplementedService } from "./service.ts";

/** A connection to a test server that a case works with. */
export interface Connection {
  readonly peer: Peer;
  readonly client: Client<typeof TestService>;
  /** One more connection to the same server, of an engine of its own; the test closes it. */
  connectAnew(): Promise<Connection>;
}

/** One case of the suite. */
export interface Case {
  /** As grpc's descriptions call it, or as the row in README.md does. */
  readonly name: string;
  /** What the server has beside the defaults. */
  readonly server?: EngineOptions;
  run(connection: Connection): Promise<void>;
}

const requestSizes = [27182, 8, 1828, 45904];
const responseSizes = [31415, 9, 2653, 58979];
const large = { responseBytes: 314159, body: new Uint8Array(271828) };

function expectZeros(received: Uint8Array | undefined, length: number): void {
  expect(received?.byteLength).toBe(length);
  expect(received?.every((byte) => byte === 0)).toBe(true);
}

async function largeUnary({ client }: Connection, options: CallOptions = {}): Promise<void> {
  expectZeros(await client.unary(large, options), large.responseBytes);
}

async function pingPong({ client }: Connection): Promise<void> {
  const stream = client.fullDuplex.open();
  for (const [index, size] of responseSizes.entries()) {
    await stream.send({ responseBytes: [size], body: new Uint8Array(requestSizes[index] ?? 0) });
    expectZeros((await stream.next()).value, size);
  }
  await stream.end();
  expect((await stream.next()).done).toBe(true);
}

/** The error that a call ends with. */
async function errorOf(call: Promise<unknown>): Promise<{ readonly code: string; readonly message: string }> {
  return call.then(
    () => ({ code: "ok", message: "" }),
    (error) => ({ code: error.code, message: error.message }),
  );
}

async function drained(items: AsyncIterable<unknown>): Promise<number> {
  let count = 0;
  for await (const _ of items) count++;
  return count;
}

/** Waits by calls of the same connection, which pass what stands still, until a count does not grow any more. */
async function untilStill({ client }: Connection, count: () => Promise<number>): Promise<number> {
  const calls = 50;
  for (let last = -1; ; ) {
    const now = await count();
    if (now === last) return now;
    last = now;
    for (let done = 0; done < calls; done++) await client.empty();
  }
}

async function expectStatus({ client }: Connection, status: { code: string; message: string }) {
  const both = [
    client.unary({ status }),
    (async () => {
      const stream = client.fullDuplex.open();
      await stream.send({ status });
      await stream.end();
      await stream.next();
    })(),
  ];
  for (const call of both) {
    const error = await errorOf(call);
    expect(error.code).toBe(status.code);
    // The message may begin with the code in brackets.
    expect(error.message.endsWith(status.message), JSON.stringify(error.message)).toBe(true);
    expect(error.message.length - status.message.length).toBeLessThanOrEqual(`[${status.code}] `.length);
  }
}

export const cases: readonly Case[] = [
  { name: "empty_unary", run: async ({ client }) => expect(await client.empty()).toBeUndefined() },
  { name: "large_unary", run: largeUnary },
  {
    name: "client_streaming",
    async run({ client }) {
      const stream = client.streamingInput.open();
      for (const size of requestSizes) await stream.send(new Uint8Array(size));
      expect(await stream.end()).toBe(74922);
    },
  },
  {
    name: "server_streaming",
    async run({ client }) {
      const received: Uint8Array[] = [];
      for await (const item of client.streamingOutput(responseSizes)) received.push(item);
      expect(received).toHaveLength(responseSizes.length);
      for (const [index, size] of responseSizes.entries()) expectZeros(received[index], size);
    },
  },
  { name: "ping_pong", run: pingPong },
  {
    name: "empty_stream",
    async run({ client }) {
      const stream = client.fullDuplex.open();
      await stream.end();
      expect(await drained(stream)).toBe(0);
    },
  },
  {
    name: "custom_metadata",
    async run({ client }) {
      const sent = {
        [initialKey]: "test_initial_metadata_value",
        [trailingKey]: Uint8Array.of(0xab, 0xab, 0xab),
      };
      const received: Metadata[] = [];
      const options = { metadata: sent, onTrailers: (metadata: Metadata) => void received.push(metadata) };
      await client.unary(large, options);
      const stream = client.fullDuplex.open(options);
      await stream.send({ responseBytes: [large.responseBytes], body: large.body });
      await stream.end();
      expect(await drained(stream)).toBe(1);
      expect(received).toHaveLength(2);
      for (const metadata of received) {
        expect(metadata.get(initialKey)).toBe(sent[initialKey]);
        expect(metadata.getBytes(trailingKey)).toEqual(sent[trailingKey]);
      }
    },
  },
  {
    name: "status_code_and_message",
    run: (connection) => expectStatus(connection, { code: "unknown", message: "test status message" }),
  },
  {
    name: "special_status_message",
    run: (connection) =>
      expectStatus(connection, {
        code: "unknown",
        message: "\t\ntest with whitespace\r\nand Unicode BMP ☺ and non-BMP 😈\t\n",
      }),
  },
  {
    name: "unimplemented_method",
    run: async ({ client }) => expect((await errorOf(client.unimplemented())).code).toBe("unimplemented"),
  },
  {
    name: "unimplemented_service",
    run: async ({ peer }) =>
      expect((await errorOf(peer.client(UnimplementedService).unimplemented())).code).toBe("unimplemented"),
  },
  {
    name: "cancel_after_begin",
    async run({ client }) {
      const aborter = new AbortController();
      const stream = client.streamingInput.open({ signal: aborter.signal });
      aborter.abort();
      expect((await errorOf(stream.end())).code).toBe("cancelled");
    },
  },
  {
    name: "cancel_after_first_response",
    async run(connection) {
      const { client } = connection;
      const { aborted } = await client.counted();
      const aborter = new AbortController();
      const stream = client.fullDuplex.open({ signal: aborter.signal });
      await stream.send({ responseBytes: [31415], body: new Uint8Array(27182) });
      expectZeros((await stream.next()).value, 31415);
      aborter.abort();
      expect((await errorOf(stream.next())).code).toBe("cancelled");
      // The server learns of it.
      while ((await client.counted()).aborted === aborted);
    },
  },
  {
    name: "timeout_on_sleeping_server",
    async run({ client }) {
      const stream = client.fullDuplex.open({ timeoutMs: 1 });
      stream.send({ body: new Uint8Array(27182) }).catch(() => {});
      expect((await errorOf(stream.next())).code).toBe("deadline_exceeded");
    },
  },
  {
    name: "concurrent_large_unary",
    async run(connection) {
      // The short form keeps a stage short; each call moves 586 KB. In the guest of devices, memory bounds what waits.
      const calls = isLong && verbsDevices.length === 0 ? 1000 : 50;
      // The last one waits for all the others, which share a processor.
      const options = { timeoutMs: 110_000 };
      await Promise.all(Array.from({ length: calls }, () => largeUnary(connection, options)));
    },
  },
  {
    name: "rpc_soak",
    async run(connection) {
      for (let count = 0; count < 10; count++) await largeUnary(connection);
    },
  },
  {
    name: "channel_soak",
    async run({ connectAnew }) {
      for (let count = 0; count < 3; count++) await largeUnary(await connectAnew());
    },
  },
  {
    name: "pushback at the client",
    async run(connection) {
      const { client } = connection;
      const stream = client.heldInput.open();
      const items = 64;
      let sent = 0;
      const sending = (async () => {
        for (; sent < items; sent++) await stream.send(new Uint8Array(itemBytes));
      })();
      const held = await untilStill(connection, async () => sent);
      expect(held).toBeLessThan(items / 2);
      await client.release();
      await sending;
      expect(await stream.end()).toBe(items * itemBytes);
    },
  },
  {
    name: "pushback at the server",
    async run(connection) {
      const { client } = connection;
      const items = 64;
      const before = (await client.counted()).given;
      const given = async () => (await client.counted()).given - before;
      const stream = client.give({ items });
      await stream.next();
      const held = await untilStill(connection, given);
      expect(held).toBeLessThan(items / 2);
      expect(await drained(stream)).toBe(items - 1);
      expect(await given()).toBe(items);
    },
  },
  {
    name: "many simultaneous calls",
    run: async ({ client }) => void (await Promise.all(Array.from({ length: 2000 }, () => client.empty()))),
  },
  {
    name: "many simultaneous calls time out",
    async run({ client }) {
      const calls = Array.from({ length: 2000 }, () => errorOf(client.sleep({ timeoutMs: 20 })));
      expect(new Set((await Promise.all(calls)).map(({ code }) => code))).toEqual(
        new Set(["deadline_exceeded"]),
      );
    },
  },
  {
    name: "more streams than the server takes at once",
    server: { limits: { maxRequests: 8 } },
    run: async (connection) =>
      void (await Promise.all(Array.from({ length: 32 }, () => pingPong(connection)))),
  },
  {
    name: "cancel before start",
    async run({ client }) {
      const before = (await client.counted()).executed;
      expect((await errorOf(client.unary(large, { signal: AbortSignal.abort() }))).code).toBe("cancelled");
      expect((await client.counted()).executed).toBe(before);
    },
  },
  {
    name: "completed before the timeout",
    run: async ({ client }) =>
      expectZeros(await client.unary(large, { timeoutMs: 120_000 }), large.responseBytes),
  },
  {
    name: "the server speaks first",
    async run({ client }) {
      const stream = client.greet.open();
      expect((await stream.next()).value).toBe("hello");
      await stream.end();
      expect((await stream.next()).done).toBe(true);
    },
  },
  {
    name: "large metadata",
    async run({ client }) {
      const value = "X".repeat(8000);
      let received: Metadata | undefined;
      const onTrailers = (metadata: Metadata) => {
        received = metadata;
      };
      await client.unary({}, { metadata: { [initialKey]: value }, onTrailers });
      expect(received?.get(initialKey)).toBe(value);
    },
  },
];
