import {
  bytes,
  type CallContext,
  clientStream,
  duplexStream,
  type Implementation,
  implement,
  RpcError,
  serverStream,
  service,
  unary,
} from "cinnabar";
import { z } from "zod";

const status = z.object({ code: z.string(), message: z.string() });
const sizes = z.array(z.int());
const payload = bytes();

/** What grpc's test.proto has, in the words of this package. Bodies are zeros, as there. */
const methods = {
  empty: unary({}),
  unary: unary({
    input: z.object({
      responseBytes: z.int().default(0),
      body: payload.optional(),
      status: status.optional(),
    }),
    output: payload,
  }),
  streamingInput: clientStream({ items: payload, output: z.int() }),
  streamingOutput: serverStream({ input: sizes, output: payload }),
  fullDuplex: duplexStream({
    items: z.object({
      responseBytes: sizes.default([]),
      body: payload.optional(),
      status: status.optional(),
    }),
    output: payload,
  }),
};

/** What the suite needs beside: a handler that waits, one that speaks first, and what the server has counted. */
const TestMethods = {
  ...methods,
  /** Answers when its caller has gone. */
  sleep: unary({}),
  /** Reads nothing before `release`. */
  heldInput: clientStream({ items: payload, output: z.int() }),
  release: unary({}),
  /** Gives so many items of 64 KiB. */
  give: serverStream({ input: z.object({ items: z.int() }), output: payload }),
  greet: duplexStream({ items: payload, output: z.string() }),
  counted: unary({ output: z.object({ given: z.int(), executed: z.int(), aborted: z.int() }) }),
};

const name = "conformance.test.v1";

/** As the server implements it. */
const Served = service(name, TestMethods);
/** As the client knows it: with a method that the server lacks. */
export const TestService = service(name, { ...TestMethods, unimplemented: unary({}) });
/** A service that the server lacks. */
export const UnimplementedService = service("conformance.unimplemented.v1", { unimplemented: unary({}) });

export const itemBytes = 64 << 10;
export const initialKey = "x-grpc-test-echo-initial";
export const trailingKey = "x-grpc-test-echo-trailing-bin";

function echoMetadata({ metadata, trailers }: Pick<CallContext, "metadata" | "trailers">): void {
  for (const [name, value] of metadata)
    if (name === initialKey || name === trailingKey) trailers.set(name, value);
}

function throwStatus(wanted: z.infer<typeof status> | undefined): void {
  if (wanted !== undefined) throw new RpcError({ code: wanted.code as "unknown", message: wanted.message });
}

/** A test server. Its counts begin at 0 and are never reset. */
export function testServer(): Implementation {
  const counts = { given: 0, executed: 0, aborted: 0 };
  /** Handlers that wait for `release`. */
  let held: (() => void)[] = [];
  return implement(Served, {
    empty: () => {
      counts.executed++;
    },
    unary({ responseBytes, status: wanted }, call) {
      counts.executed++;
      echoMetadata(call);
      throwStatus(wanted);
      return new Uint8Array(responseBytes);
    },
    async streamingInput(items, call) {
      let total = 0;
      call.signal.addEventListener("abort", () => counts.aborted++);
      for await (const item of items) total += item.byteLength;
      return total;
    },
    async *streamingOutput(wanted) {
      for (const size of wanted) yield new Uint8Array(size);
    },
    async *fullDuplex(items, call) {
      call.signal.addEventListener("abort", () => counts.aborted++);
      echoMetadata(call);
      for await (const { responseBytes, status: wanted } of items) {
        throwStatus(wanted);
        for (const size of responseBytes) yield new Uint8Array(size);
      }
    },
    sleep: (_, { signal }) =>
      new Promise((resolve) => {
        if (signal.aborted) resolve();
        else signal.addEventListener("abort", () => resolve());
      }),
    async heldInput(items) {
      await new Promise<void>((resolve) => held.push(resolve));
      let total = 0;
      for await (const item of items) total += item.byteLength;
      return total;
    },
    release: () => {
      for (const go of held) go();
      held = [];
    },
    async *give({ items }) {
      for (let count = 0; count < items; count++) {
        counts.given++;
        yield new Uint8Array(itemBytes);
      }
    },
    async *greet(items) {
      yield "hello";
      for await (const _ of items);
    },
    counted: () => counts,
  });
}
