import { describe, expect, it } from "vitest";
import { IncomingCall, type Outcome } from "../../call/incoming-call.ts";
import { RingReader, RingWriter } from "./ring.ts";

const shape = { chunkBytes: 8, chunks: 2 };

/** A question of the other side's, and what it was answered. */
function question() {
  let outcome: Outcome | undefined;
  const call = new IncomingCall({ answer: (_, ended) => void (outcome = ended) }, 1, 0);
  return {
    call,
    get answer(): unknown {
      if (outcome === undefined) return "none yet";
      return outcome.error === undefined ? outcome.value : outcome.error.code;
    },
  };
}

describe("a ring that is written from afar", () => {
  function setUp() {
    const reader = new RingReader(shape, new Uint8Array(16), { fail() {} });
    const push = (seq: number, bytes: number, last = false) => {
      const asked = question();
      reader.onPush(asked.call, seq, bytes, last);
      return asked;
    };
    return { reader, push };
  }

  it.each([
    ["is longer than a chunk", 0, 9, false],
    ["is empty and not the last", 0, 0, false],
    ["is not the next", 1, 8, false],
  ] as const)("refuses a chunk that %s", (_, seq, bytes, last) => {
    expect(setUp().push(seq, bytes, last).answer).toBe("invalid_argument");
  });

  it("takes no chunk while the answer to the one before is not given, and none after the last", async () => {
    const { reader, push } = setUp();
    expect(push(0, 8).answer).toBe(0);
    const full = push(1, 8);
    expect(full.answer).toBe("none yet");
    expect(push(2, 8).answer).toBe("invalid_argument");
    expect(await reader.peek()).toHaveLength(8);
    reader.use(8);
    expect(full.answer).toBe(1);
    const last = push(2, 3, true);
    expect(push(3, 1).answer).toBe("invalid_argument");
    for (const bytes of [8, 3]) {
      expect(await reader.peek()).toHaveLength(bytes);
      reader.use(bytes);
    }
    expect([last.answer, await reader.peek()]).toEqual([3, undefined]);
    expect(push(3, 1).answer).toBe("invalid_argument");
  });
});

describe("a ring that is read from afar", () => {
  function setUp() {
    const writer = new RingWriter(shape, new Uint8Array(16));
    const next = (seq: number, taken: number) => {
      const asked = question();
      writer.onNext(asked.call, seq, taken);
      return asked;
    };
    return { writer, next };
  }

  it.each([
    ["that is not the next", 1, 0],
    ["having used more than it was given", 0, 1],
  ])("refuses to give a chunk to a reader %s", (_, seq, taken) => {
    expect(setUp().next(seq, taken).answer).toBe("invalid_argument");
  });

  it("lets no reader take back what it has given back, or ask twice", async () => {
    const { writer, next } = setUp();
    await writer.write(new Uint8Array(16));
    expect(next(0, 0).answer).toEqual([8, false]);
    expect(next(1, 1).answer).toEqual([8, false]);
    expect(next(2, 0).answer).toBe("invalid_argument");
    const waits = next(2, 2);
    expect([waits.answer, next(2, 2).answer]).toEqual(["none yet", "invalid_argument"]);
    await writer.write(new Uint8Array(3));
    expect(waits.answer).toEqual([3, false]);
  });

  it("is not complete before the reader has said that it has everything", async () => {
    const { writer, next } = setUp();
    const closed = writer.close();
    expect(next(0, 0).answer).toEqual([0, true]);
    expect(writer.complete).toBe(false);
    expect(next(1, 1).answer).toEqual([0, true]);
    await closed;
  });
});
