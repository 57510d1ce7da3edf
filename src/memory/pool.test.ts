import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { FakeClock } from "../base/time/fake-clock.test-support.ts";
import { FakePort } from "../session/connection/fake-port.test-support.ts";
import { addUser, removeUser } from "./memory-users.ts";
import { closePool, type Exposer, Pool } from "./pool.ts";
import { hold } from "./registration-cache.ts";

const kibibyte = 1024;
const mebibyte = 1024 * kibibyte;

setFlagsFromString("--expose-gc");
const collect = runInNewContext("gc") as () => void;

/** The part of a region that a pool needs: it uses the memory until it is disposed. */
function fakeExposer(disposed: string[] = []): Exposer {
  return ((bytes: Uint8Array, access: string) => {
    addUser(bytes.buffer);
    return {
      access,
      bytes,
      dispose() {
        disposed.push(access);
        removeUser(bytes.buffer);
      },
    };
  }) as unknown as Exposer;
}

function setUp(maxBytes = 64 * mebibyte) {
  const clock = new FakeClock();
  const pool = new Pool(clock, maxBytes, fakeExposer());
  onTestFinished(() => closePool(pool));
  return { clock, pool };
}

describe("pool.take", () => {
  it("gives zeros of exactly the length asked for, over a slab of its own", () => {
    const { pool } = setUp();
    for (const bytes of [1, 5000, 100_000, 3 * mebibyte]) {
      const memory = pool.take(bytes);
      expect([memory.byteLength, memory.bytes.byteLength, memory.bytes.byteOffset]).toEqual([
        bytes,
        bytes,
        0,
      ]);
      expect(memory.bytes.every((byte) => byte === 0)).toBe(true);
      expect(pool.take(bytes).bytes.buffer).not.toBe(memory.bytes.buffer);
    }
    expect(pool.stats()).toMatchObject({ slabs: 8, hits: 0, misses: 8, freeBytes: 0 });
  });

  it("serves the next taker with what was given back, without a trace of the last one", () => {
    const { pool } = setUp();
    const first = pool.take(5000);
    const { buffer } = first.bytes;
    new Uint8Array(buffer).fill(0xee);
    first.dispose();
    expect(pool.stats()).toMatchObject({ takenBytes: 0, freeBytes: 8192, slabs: 1 });
    const second = pool.take(4100);
    expect(second.bytes.buffer).toBe(buffer);
    expect(new Uint8Array(buffer).every((byte) => byte === 0)).toBe(true);
    expect(pool.stats()).toEqual({
      takenBytes: 8192,
      freeBytes: 0,
      slabs: 1,
      hits: 1,
      misses: 1,
      trims: 0,
    });
  });

  it("leaves the bytes as they are when it is told to", () => {
    const { pool } = setUp();
    const first = pool.take(5000);
    first.bytes.fill(7);
    first.dispose();
    expect(pool.take(5000, { zero: false }).bytes.every((byte) => byte === 7)).toBe(true);
  });

  it.each([
    [0, {}, "bytes must be an integer of at least 1, it is 0"],
    [-1, {}, "bytes must be an integer"],
    [1.5, {}, "bytes must be an integer"],
    ["4096", {}, "bytes must be an integer"],
    [Number.POSITIVE_INFINITY, {}, "bytes must be an integer"],
    [2 ** 53, {}, "bytes must be an integer"],
    [1, { zeros: true }, 'unknown option "zeros"; did you mean "zero"? known are zero, access, keys'],
    [1, { zero: 1 }, "zero must be true or false, it is 1"],
    [1, null, "options must be an object"],
    [1, { memory: "host" }, 'unknown option "memory"'],
  ])("refuses %j with %j", (bytes, options, why) => {
    const { pool } = setUp();
    expect(() => pool.take(bytes as number, options as never)).toThrow(why);
    expect(pool.stats()).toMatchObject({ takenBytes: 0, freeBytes: 0, slabs: 0 });
  });

  it("is bounded, and says which limit it has reached", () => {
    const { pool } = setUp(mebibyte);
    const taken = [pool.take(512 * kibibyte), pool.take(512 * kibibyte)];
    expect(() => pool.take(1)).toThrow(
      "[resource_exhausted] pool.take: 1 bytes need a slab of 4096 bytes; 1048576 bytes are taken and limits.maxPoolBytes is 1048576",
    );
    expect(() => pool.take(2 * mebibyte)).toThrow("[resource_exhausted]");
    taken[0]?.dispose();
    pool.take(512 * kibibyte);
    expect(pool.stats()).toMatchObject({ takenBytes: mebibyte, freeBytes: 0, hits: 1 });
  });

  it("gives free slabs up, the oldest first, for one of another length", () => {
    const { clock, pool } = setUp(mebibyte);
    const [first, second] = [pool.take(256 * kibibyte), pool.take(320 * kibibyte)];
    second.dispose();
    clock.advance(10);
    first.dispose();
    pool.take(512 * kibibyte);
    expect(pool.stats()).toMatchObject({ takenBytes: 512 * kibibyte, freeBytes: 256 * kibibyte, trims: 1 });
    pool.take(500 * kibibyte);
    expect(pool.stats()).toMatchObject({ takenBytes: mebibyte, freeBytes: 0, trims: 2, slabs: 2 });
  });
});

describe("pooled memory", () => {
  it("shows itself as any typed array without a copy", () => {
    const { pool } = setUp();
    const memory = pool.take(64);
    const floats = memory.as(Float64Array);
    floats[7] = 1;
    expect([floats.length, memory.bytes[63], memory.as(BigUint64Array).length]).toEqual([8, 0x3f, 8]);
    memory.as(DataView).setUint8(0, 9);
    expect([memory.as(DataView).byteLength, memory.bytes[0]]).toEqual([64, 9]);
    expect(() => pool.take(10).as(Float64Array)).toThrow(
      "as: 10 bytes are not a multiple of 8, the element size of Float64Array",
    );
  });

  it("refuses every use after its end, which may come twice", () => {
    const { pool } = setUp();
    const memory = pool.take(100, { access: "read" });
    expect(memory.region.access).toBe("read");
    {
      using _same = memory;
    }
    memory.dispose();
    expect(memory.disposed).toBe(true);
    for (const use of [() => memory.bytes, () => memory.as(Uint8Array), () => memory.region])
      expect(use).toThrow("[failed_precondition] the memory has been disposed; it belongs to the pool again");
    expect(pool.stats()).toMatchObject({ takenBytes: 0, freeBytes: 4096 });
  });

  it("has a region when it was taken with an access, and none otherwise", () => {
    const { pool } = setUp();
    expect(() => pool.take(100).region).toThrow(
      "[failed_precondition] the memory has no region: take it with",
    );
    const refused = new Pool(new FakeClock(), mebibyte, () => {
      throw new TypeError("no such access");
    });
    expect(() => refused.take(100, { access: "read" })).toThrow("no such access");
    expect(refused.stats()).toMatchObject({ takenBytes: 0, freeBytes: 4096 });
  });

  it("goes back only when the last transfer and the last region are done", () => {
    const { pool } = setUp();
    const port = new FakePort();
    const memory = pool.take(5000);
    const { bytes } = memory;
    const [one, two] = [hold(port, bytes), hold(port, bytes.subarray(10))];
    addUser(bytes.buffer);
    memory.dispose();
    one.release();
    one.release();
    expect(pool.stats()).toMatchObject({ takenBytes: 8192, freeBytes: 0 });
    expect(pool.take(5000).bytes.buffer).not.toBe(bytes.buffer);
    two.release();
    expect(pool.stats().takenBytes).toBe(2 * 8192);
    removeUser(bytes.buffer);
    expect(pool.stats()).toMatchObject({ takenBytes: 8192, freeBytes: 8192 });
    expect(pool.take(5000).bytes.buffer).toBe(bytes.buffer);
  });

  it("stays taken when its users come and go before its end", () => {
    const { pool } = setUp();
    const memory = pool.take(5000);
    hold(new FakePort(), memory.bytes).release();
    expect(pool.stats()).toMatchObject({ takenBytes: 8192, freeBytes: 0 });
  });
});

describe("an idle pool", () => {
  it("gives each slab back after five seconds, by a timer that runs only while there are some", () => {
    const { clock, pool } = setUp();
    expect(clock.timers).toBe(0);
    const [first, second, third] = [pool.take(1), pool.take(1), pool.take(100_000)];
    first.dispose();
    clock.advance(3000);
    second.dispose();
    third.dispose();
    expect(clock.timers).toBe(1);
    clock.advance(1999);
    expect(pool.stats()).toMatchObject({ slabs: 3, trims: 0 });
    clock.advance(1);
    expect(pool.stats()).toMatchObject({ slabs: 2, trims: 1 });
    clock.advance(3000);
    expect(pool.stats()).toMatchObject({ slabs: 0, freeBytes: 0, trims: 3 });
    expect(clock.timers).toBe(0);
  });

  it("keeps what is in use again and again", () => {
    const { clock, pool } = setUp();
    for (let i = 0; i < 20; i++) {
      pool.take(100_000).dispose();
      clock.advance(1000);
    }
    expect(pool.stats()).toMatchObject({ slabs: 1, hits: 19, misses: 1, trims: 0 });
  });

  it("gives everything back when it is told to, and when it closes; what is taken follows", () => {
    const { clock, pool } = setUp();
    const memory = pool.take(100_000);
    const bytes = memory.bytes;
    pool.take(100_000).dispose();
    pool.trim();
    expect(pool.stats()).toMatchObject({ slabs: 1, trims: 1 });
    closePool(pool);
    expect(() => pool.take(1)).toThrow("[unavailable] the engine has been closed");
    bytes.fill(1);
    memory.dispose();
    expect(pool.stats()).toMatchObject({ slabs: 0, takenBytes: 0, freeBytes: 0 });
    expect(clock.timers).toBe(0);
  });
});

describe("forgotten memory", () => {
  /** A length for which no other test forgets memory, and the length of its slab. */
  const [bytes, slabBytes] = [123_456, 131_072];

  function listen(): [string, string][] {
    const warn = vi.spyOn(process, "emitWarning").mockImplementation(() => {});
    onTestFinished(() => warn.mockRestore());
    return warn.mock.calls as unknown as [string, string][];
  }
  const ours = (warnings: [string, string][]) =>
    warnings.filter(([message]) => message.includes(`${bytes} bytes`));

  async function collected(condition: () => boolean): Promise<void> {
    await expect
      .poll(() => {
        collect();
        return condition();
      })
      .toBe(true);
  }

  it("is counted back, with one warning that says where it was taken, however often", async () => {
    const warnings = listen();
    const { pool } = setUp();
    (() => {
      for (let i = 0; i < 3; i++) pool.take(bytes).bytes.fill(1);
    })();
    await collected(() => pool.stats().takenBytes === 0);
    expect(pool.stats()).toMatchObject({ slabs: 0, freeBytes: 0 });
    const [[message, name], ...others] = ours(warnings) as [[string, string], ...unknown[]];
    expect([name, others.length]).toEqual(["CinnabarLeakWarning", 0]);
    expect(message).toMatch(/^pooled memory of \d+ bytes was forgotten .* taken at .*pool\.test\.ts:\d+:\d+/);
  });

  it("is nobody else's while a view of it lives", async () => {
    const warnings = listen();
    const { pool } = setUp();
    let view: Uint8Array | undefined = (() => pool.take(bytes).bytes.subarray(5, 10))();
    for (let i = 0; i < 5; i++) {
      collect();
      await new Promise(setImmediate);
    }
    expect([pool.stats().takenBytes, ours(warnings).length, view.length]).toEqual([slabBytes, 0, 5]);
    view = undefined;
    await collected(() => pool.stats().takenBytes === 0);
    expect(ours(warnings)).toHaveLength(1);
  });

  it("that was disposed gives no warning", async () => {
    const warnings = listen();
    const { clock, pool } = setUp();
    (() => pool.take(bytes).dispose())();
    clock.advance(5000);
    for (let i = 0; i < 5; i++) {
      collect();
      await new Promise(setImmediate);
    }
    expect([pool.stats().slabs, ours(warnings).length]).toEqual([0, 0]);
  });
});
