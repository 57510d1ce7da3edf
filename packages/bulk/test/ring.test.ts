import { describe, expect, it } from "vitest";
import { Question } from "../src/byte-stream/question.ts";
import { type NextChunk, RingReader, RingWriter } from "../src/byte-stream/ring.ts";

const shape = { chunkBytes: 8, chunks: 2 };

/** A question of the other side, and its answer. */
class Asked<T> extends Question<T> {
  said: unknown = "none yet";

  override settle(answer: Parameters<Question<T>["settle"]>[0]): void {
    super.settle(answer);
    this.said = answer.error === undefined ? answer.value : answer.error.code;
  }
}

describe("a ring that is written from afar", () => {
  function setUp() {
    const reader = new RingReader(shape, new Uint8Array(16), { fail() {} });
    const push = (seq: number, bytes: number, last = false) => {
      const asked = new Asked<number>();
      reader.onPush(asked, seq, bytes, last);
      return asked;
    };
    return { reader, push };
  }

  it.each([
    ["is longer than a chunk", 0, 9, false],
    ["is empty and not the last", 0, 0, false],
    ["is not the next", 1, 8, false],
  ] as const)("refuses a chunk that %s", (_, seq, bytes, last) => {
    expect(setUp().push(seq, bytes, last).said).toBe("invalid_argument");
  });

  it("takes no chunk while the answer to the one before is not given, and none after the last", async () => {
    const { reader, push } = setUp();
    expect(push(0, 8).said).toBe(0);
    const full = push(1, 8);
    expect(full.said).toBe("none yet");
    expect(push(2, 8).said).toBe("invalid_argument");
    expect(await reader.peek()).toHaveLength(8);
    reader.use(8);
    expect(full.said).toBe(1);
    const last = push(2, 3, true);
    expect(push(3, 1).said).toBe("invalid_argument");
    for (const bytes of [8, 3]) {
      expect(await reader.peek()).toHaveLength(bytes);
      reader.use(bytes);
    }
    expect([last.said, await reader.peek()]).toEqual([3, undefined]);
    expect(push(3, 1).said).toBe("invalid_argument");
  });
});

describe("a ring that is read from afar", () => {
  function setUp() {
    const writer = new RingWriter(shape, new Uint8Array(16));
    const next = (seq: number, taken: number) => {
      const asked = new Asked<NextChunk>();
      writer.onNext(asked, seq, taken);
      return asked;
    };
    return { writer, next };
  }

  it.each([
    ["that is not the next", 1, 0],
    ["having used more than it was given", 0, 1],
  ])("refuses to give a chunk to a reader %s", (_, seq, taken) => {
    expect(setUp().next(seq, taken).said).toBe("invalid_argument");
  });

  it("lets no reader take back what it has given back, or ask twice", async () => {
    const { writer, next } = setUp();
    await writer.write(new Uint8Array(16));
    expect(next(0, 0).said).toEqual([8, false]);
    expect(next(1, 1).said).toEqual([8, false]);
    expect(next(2, 0).said).toBe("invalid_argument");
    const waits = next(2, 2);
    expect([waits.said, next(2, 2).said]).toEqual(["none yet", "invalid_argument"]);
    await writer.write(new Uint8Array(3));
    expect(waits.said).toEqual([3, false]);
  });

  it("is not complete before the reader has said that it has everything", async () => {
    const { writer, next } = setUp();
    const closed = writer.close();
    expect(next(0, 0).said).toEqual([0, true]);
    expect(writer.complete).toBe(false);
    expect(next(1, 1).said).toEqual([0, true]);
    await closed;
  });
});
