import { randomBytes } from "node:crypto";
import { deflateSync } from "node:zlib";
import { describe, expect, it, vi } from "vitest";
import { RpcError } from "../../base/errors/rpc-error.ts";
import type { EngineLimits } from "../../base/flow/engine-limits.ts";
import { resolveCompression } from "../../call/compression.ts";
import { type CompressionBlock, notCompressed, writeCompressionBlock } from "../../wire/compressed-body.ts";
import { encode } from "../../wire/encode-value.ts";
import { frameFlag, frameKind, rendezvousOwner } from "../../wire/frame.ts";
import { FakeCall, type FrameSpec, peerGreeting } from "../connection/fake-services.test-support.ts";
import { decoded, expectFault, gone, id, rendezvousBody, setUp } from "./scripted-session.test-support.ts";

const laterMs = 10_000;
const text = "the same again ".repeat(3000);
const textBytes = encode(text);

/** An open session with a peer that takes deflate. */
function open({
  limits = {},
  features = [1, 2],
}: {
  readonly limits?: Partial<EngineLimits>;
  readonly features?: readonly number[];
} = {}) {
  const all = setUp(limits);
  all.port.scheme = "tcp";
  all.session.accept({ ...peerGreeting, features });
  all.port.sent.length = 0;
  return all;
}

/** Until a job of zlib has brought it about. */
const until = (condition: () => boolean) => vi.waitUntil(condition, { timeout: 20_000, interval: 1 });

const withBlock = (block: Partial<CompressionBlock>, body: Uint8Array): Uint8Array =>
  Buffer.concat([writeCompressionBlock({ ...notCompressed, ...block }), body]);

/** A request whose body is compressed. */
const request = (
  body: Uint8Array = deflateSync(textBytes),
  block: Partial<CompressionBlock> = { format: "deflate", plainBytes: textBytes.byteLength },
  more: Partial<FrameSpec> = {},
): FrameSpec => ({
  kind: frameKind.request,
  callId: id(1, 0),
  word: 5000,
  flags: frameFlag.compression,
  body: withBlock(block, body),
  ...more,
});

describe("a compressed request", () => {
  it("is served with the value that was compressed, and counts in its peer's share until the answer", async () => {
    const all = open();
    const before = all.host.pullBudget.bytes;
    all.receive(request());
    expect(all.method.calls).toHaveLength(0);
    expect(all.host.pullBudget.bytes).toBeGreaterThan(textBytes.byteLength);
    await until(() => all.method.calls.length > 0);
    expect(all.method.calls[0]?.input).toBe(text);
    await until(() => all.host.pullBudget.bytes === before + textBytes.byteLength);
    all.method.calls[0]?.call.settle({ value: undefined });
    expect(all.host.pullBudget.bytes).toBe(before);
    expect(all.host.counters).toMatchObject({ bodiesDecompressed: 1, requestsSucceeded: 1, malformed: 0 });
  });

  it("is pulled first where it does not fit a message", async () => {
    const all = open();
    const noise = encode(randomBytes(20_000).toString("base64"));
    const packed = deflateSync(noise);
    all.receive(
      request(
        rendezvousBody(packed.byteLength),
        { format: "deflate", plainBytes: noise.byteLength },
        {
          flags: frameFlag.compression | frameFlag.rendezvous,
        },
      ),
    );
    expect(all.port.pulls[0]?.into.byteLength).toBe(packed.byteLength);
    all.port.pulls[0]?.into.set(packed);
    all.port.pulls[0]?.settle(0);
    await until(() => all.method.calls.length > 0);
    all.session.flush();
    expect(all.port.frames).toMatchObject([{ kind: frameKind.pulled, word: rendezvousOwner.request }]);
    expect(encode(all.method.calls[0]?.input)).toEqual(noise);
  });

  it.each<[string, Uint8Array, number]>([
    ["is a bomb", deflateSync(Buffer.alloc(16 * 1024 * 1024)).subarray(0, 3000), 1000],
    ["is longer than it states", deflateSync(textBytes), textBytes.byteLength - 1],
    ["is shorter than it states", deflateSync(textBytes), textBytes.byteLength + 1],
    ["is cut off", deflateSync(textBytes).subarray(0, -3), textBytes.byteLength],
    [
      "is followed by other bytes",
      Buffer.concat([deflateSync(textBytes), Buffer.from("x")]),
      textBytes.byteLength,
    ],
    ["is no deflate", randomBytes(500), 1000],
    ["is empty", new Uint8Array(0), 1000],
  ])("fails alone when it %s", async (_, body, plainBytes) => {
    const all = open();
    all.receive(request(body, { format: "deflate", plainBytes }));
    await until(() => all.host.counters.requestsFailed === 1);
    all.session.flush();
    expect(all.port.frames).toMatchObject([{ kind: frameKind.error, callId: id(1, 0), word: 15 }]);
    expect(decoded(all.port.frames[0])).toMatchObject({
      m: expect.stringContaining("is damaged, or not as long as it states"),
    });
    expect(all.session.state).toBe("open");
    expect([all.method.calls.length, all.host.pullBudget.bytes]).toEqual([0, 0]);
  });

  it("is refused before anything is decompressed or pulled where its length exceeds its peer's share", () => {
    const all = open({ limits: { maxPullBytes: 100_000 } });
    all.receive(request());
    expect(all.host.pullBudget.bytes).toBeGreaterThan(0);
    const long = { format: "deflate", plainBytes: 90_000 } as const;
    all.receive(request(undefined, long, { callId: id(1, 1) }));
    all.receive(
      request(rendezvousBody(500), long, {
        callId: id(1, 2),
        flags: frameFlag.compression | frameFlag.rendezvous,
      }),
    );
    expect(all.port.pulls).toHaveLength(0);
    all.session.flush();
    expect(all.port.frames).toMatchObject([
      { kind: frameKind.error, callId: id(1, 1), word: 8 },
      { kind: frameKind.pulled, callId: id(1, 2), word: rendezvousOwner.request },
      { kind: frameKind.error, callId: id(1, 2), word: 8 },
    ]);
  });

  it.each<[string, Partial<CompressionBlock>, string]>([
    [
      "states more than maxBodyBytes",
      { format: "deflate", plainBytes: 2 ** 31 },
      "compressed body of 2147483648 bytes exceeds maxBodyBytes 1000000",
    ],
    [
      "has a format that was not agreed on",
      { format: "zstd", plainBytes: 9 },
      "compression format 2 was not agreed on",
    ],
    [
      "asks for one that was not agreed on",
      { answerFormat: "zstd" },
      "compression format 2 was not agreed on",
    ],
    ["states no length", { format: "deflate" }, "compressed body states a length of 0"],
  ])("ends the session when it %s", (_, block, fault) => {
    const all = open({ limits: { maxBodyBytes: 1_000_000 } });
    all.receive(request(undefined, block));
    expectFault(all, fault);
  });

  it("ends the session where no compression was agreed on, or where it is a control request", () => {
    for (const features of [[], [1], [9]]) {
      const all = open({ features });
      all.receive(request());
      expectFault(all, "a compressed body arrived, and no compression was agreed on");
    }
    const all = open();
    const { maxRequests } = all.host.limits;
    all.receive(request(undefined, undefined, { method: 0xff00, callId: id(1, maxRequests) }));
    expectFault(all, "a control request has a block of compression");
  });

  it("whose value is malformed ends the session, as one that is not compressed", async () => {
    const all = open();
    all.receive(request(deflateSync(Uint8Array.of(0xc1)), { format: "deflate", plainBytes: 1 }));
    await until(() => all.session.state === "ended");
    expectFault(all, "body cannot be decoded");
    expect(all.host.pullBudget.bytes).toBe(0);
  });

  it("is answered once when it is cancelled meanwhile, and lets go of all when its session ends", async () => {
    const all = open();
    all.receive(request());
    all.receive({ kind: frameKind.cancel, callId: id(1, 0) });
    await until(() => all.host.pullBudget.bytes === 0);
    all.session.flush();
    expect(all.port.frames).toMatchObject([{ kind: frameKind.error, callId: id(1, 0), word: 1 }]);
    all.receive(request(undefined, undefined, { callId: id(2, 0) }));
    all.session.end(gone);
    await until(() => all.host.pullBudget.bytes === 0);
    expect(all.method.calls).toHaveLength(0);
  });
});

describe("the answer to a request that takes a compressed one", () => {
  const asking = { answerFormat: "deflate", answerMinBytes: 1000 } as const;
  const value = encode("input");

  it("is compressed where it is longer than the request says, and not otherwise", async () => {
    const all = open();
    all.receive(request(value, asking), request(value, asking, { callId: id(1, 1) }));
    all.method.calls[1]?.call.settle({ value: "short" });
    all.method.calls[0]?.call.settle({ value: text });
    expect(all.incoming.size).toBe(1);
    await until(() => all.incoming.size === 0);
    all.session.flush();
    const [short, long] = all.port.frames;
    expect(short).toMatchObject({ kind: frameKind.response, callId: id(1, 1), flags: 0 });
    expect(decoded(short)).toBe("short");
    expect(long).toMatchObject({ kind: frameKind.response, callId: id(1, 0), flags: frameFlag.compression });
    const block = { format: "deflate", plainBytes: textBytes.byteLength } as const;
    expect(long?.body.subarray(0, 16)).toEqual(writeCompressionBlock({ ...notCompressed, ...block }));
    expect(all.host.counters).toMatchObject({
      bodiesCompressed: 1,
      bytesBeforeCompression: block.plainBytes,
    });
    expect(all.host.offerBudget.bytes).toBe(0);
  });

  it("goes nowhere when its session ends meanwhile", async () => {
    const all = open();
    all.receive(request(value, asking));
    all.method.calls[0]?.call.settle({ value: text });
    expect(all.host.offerBudget.bytes).toBe(textBytes.byteLength);
    all.session.end(gone);
    await until(() => all.host.offerBudget.bytes === 0);
    expect(all.port.frames.filter(({ kind }) => kind === frameKind.response)).toEqual([]);
  });

  it("travels as it is where no more may be kept for the peer", () => {
    const all = open({ limits: { maxOfferBytes: 50_000 } });
    all.session.account.offers.hold(50_000);
    const middling = "y".repeat(3000);
    all.receive(request(value, asking));
    all.method.calls[0]?.call.settle({ value: middling });
    all.session.flush();
    expect(all.port.frames).toMatchObject([{ kind: frameKind.response, flags: 0 }]);
    expect(decoded(all.port.frames[0])).toBe(middling);
  });

  it("is not compressed where it is an error", () => {
    const all = open();
    all.receive(request(value, asking));
    const error = new RpcError({ code: "not_found", message: "z".repeat(2000) });
    all.method.calls[0]?.call.settle({ error });
    all.session.flush();
    expect(all.port.frames).toMatchObject([{ kind: frameKind.error, flags: 0, word: 5 }]);
  });
});

describe("a request that its caller wants compressed", () => {
  const terms = resolveCompression("call", "compression", { format: "deflate", minBytes: 1000 });

  function made(input: unknown, all = open()) {
    const call = new FakeCall();
    call.compression = terms;
    const packing = all.outgoing.pack(call, input);
    const send = () => all.outgoing.request(call, 1, laterMs, input);
    return { ...all, call, packing, send };
  }

  const answer = (all: ReturnType<typeof made>, body: Uint8Array, block: Partial<CompressionBlock>) =>
    all.receive({
      kind: frameKind.response,
      callId: all.call.id,
      flags: frameFlag.compression,
      body: withBlock(block, body),
    });

  it("leaves compressed, and asks for the same of its answer", async () => {
    const all = made(text);
    expect(all.host.offerBudget.bytes).toBe(textBytes.byteLength);
    await all.packing;
    expect(all.host.offerBudget.bytes).toBe(0);
    all.send();
    const [frame] = all.port.frames;
    expect(frame).toMatchObject({ kind: frameKind.request, flags: frameFlag.compression });
    const block = { format: "deflate", plainBytes: textBytes.byteLength } as const;
    expect(frame?.body.subarray(0, 16)).toEqual(
      writeCompressionBlock({ ...block, answerFormat: "deflate", answerMinBytes: 1000 }),
    );
    // Nobody needs its bytes any more.
    expect(all.call.packed?.bytes).toBeUndefined();
    answer(all, deflateSync(textBytes), block);
    await until(() => all.call.values.length > 0);
    expect(all.call.values).toEqual([text]);
    expect([all.host.pullBudget.bytes, all.outgoing.size]).toEqual([0, 0]);
  });

  it("leaves at once where it is short, and asks all the same", () => {
    for (const input of ["short", undefined]) {
      const all = made(input);
      expect(all.packing).toBeUndefined();
      all.send();
      const [frame] = all.port.frames;
      expect(frame?.flags).toBe(frameFlag.compression);
      const block = { ...notCompressed, answerFormat: "deflate", answerMinBytes: 1000 } as const;
      const body = input === undefined ? new Uint8Array(0) : encode(input);
      expect(frame?.body).toEqual(Uint8Array.from(withBlock(block, body)));
    }
  });

  it("has another format where the peer lacks the one that is wanted", async () => {
    const all = open();
    const call = new FakeCall();
    call.compression = { format: "zstd", minBytes: 1000, sealed: false };
    await all.outgoing.pack(call, text);
    all.outgoing.request(call, 1, laterMs, text);
    expect(all.port.frames[0]?.body.subarray(0, 2)).toEqual(Uint8Array.of(1, 1));
  });

  it("leaves as all others do where the peer takes no compression", () => {
    const all = made(text, open({ features: [1] }));
    expect([all.packing, all.call.packed]).toEqual([undefined, undefined]);
    all.send();
    expect(all.port.frames[0]?.flags).toBe(frameFlag.rendezvous);
  });

  it("fails as all others do where it cannot be encoded or is too long", () => {
    for (const [input, fault] of [
      [2n ** 9000n, "[invalid_argument]"],
      ["x".repeat(20_000), "maxBodyBytes is 10000"],
    ] as const) {
      const all = made(input, open({ limits: { maxBodyBytes: 10_000 } }));
      expect(all.packing).toBeUndefined();
      expect(all.send).toThrow(fault);
      expect([all.outgoing.size, all.port.frames.length]).toEqual([0, 0]);
    }
  });

  it("fails when its session has ended meanwhile", async () => {
    const all = made(text);
    all.session.end(gone);
    await all.packing;
    expect(all.send).toThrow("the session with the peer has ended");
    expect(all.host.offerBudget.bytes).toBe(0);
  });

  it.each<[string, Uint8Array, number]>([
    ["is longer than it states", deflateSync(textBytes), 1000],
    ["is cut off", deflateSync(textBytes).subarray(0, 20), textBytes.byteLength],
  ])("fails alone when its answer %s", async (_, body, plainBytes) => {
    const all = made("short");
    all.send();
    answer(all, body, { format: "deflate", plainBytes });
    await until(() => all.call.failures.length > 0);
    expect(all.call.failures).toMatchObject([{ code: "data_loss", origin: "local" }]);
    expect([all.session.state, all.host.pullBudget.bytes, all.outgoing.size]).toEqual(["open", 0, 0]);
  });

  it("ends its session for an answer that it does not take", () => {
    const other = made("short");
    other.send();
    answer(other, deflateSync(textBytes), { format: "zstd", plainBytes: textBytes.byteLength });
    expectFault(other, "compression format 2 was not agreed on");
    const all = open();
    const call = new FakeCall();
    all.outgoing.request(call, 1, laterMs, "plain");
    answer({ ...other, ...all, call }, deflateSync(textBytes), { format: "deflate", plainBytes: 9 });
    expectFault(all, "a compressed answer arrived to a request that does not take one");
  });

  it("takes no value when it has been given up while its answer is decompressed", async () => {
    const all = made("short");
    all.send();
    answer(all, deflateSync(textBytes), { format: "deflate", plainBytes: textBytes.byteLength });
    expect(all.call.phase).toBe("pulling");
    all.call.giveUp();
    await until(() => all.outgoing.size === 0);
    expect([all.call.values.length, all.call.failures.length, all.host.pullBudget.bytes]).toEqual([0, 0, 0]);
  });

  it("ends its session for a second answer while the first is decompressed", () => {
    const all = made("short");
    all.send();
    answer(all, deflateSync(textBytes), { format: "deflate", plainBytes: textBytes.byteLength });
    all.receive({ kind: frameKind.response, callId: all.call.id, body: 1 });
    expectFault(all, `a second answer arrived for call ${all.call.id}`);
    expect(all.call.failures).toHaveLength(1);
  });
});

describe("an error frame with a block of compression", () => {
  it("ends the session", () => {
    const all = open();
    all.receive({ kind: frameKind.error, callId: id(1, 0), flags: frameFlag.compression, word: 1 });
    expectFault(all, "frame kind 6 may not have a compressed body");
  });
});
