import { describe, expect, it } from "vitest";
import type { RpcError } from "../base/errors/rpc-error.ts";
import { resolveOptions } from "../base/options/options.ts";
import { FakeClock } from "../base/time/fake-clock.test-support.ts";
import { FakePort } from "../session/connection/fake-port.test-support.ts";
import { assertInside, exposable, exposeFields } from "./exposable.ts";
import { coreOf, Region } from "./region.ts";
import { type QuarantinedMemory, RegionCore } from "./region-core.ts";
import { grantedHere } from "./region-registration.ts";

const ignore = () => {};

function setUp(bytes = 100, pieces = 1) {
  const released: RegionCore[] = [];
  const clock = new FakeClock();
  const owner = { clock, onRegionReleased: (region: RegionCore) => void released.push(region) };
  const memory = Uint8Array.from({ length: bytes + 8 }, (_, i) => i);
  const views =
    pieces === 1
      ? [memory.subarray(8)]
      : Array.from({ length: pieces }, () => Uint8Array.from({ length: bytes / pieces }, (_, i) => i));
  const core = new RegionCore(owner, exposable(views), "read_write");
  return { clock, port: new FakePort(), released, memory, views, core, region: new Region(core) };
}

/** Does not report withdrawn memory as released until the test says so. */
class SlowPort extends FakePort {
  readonly waiting: (() => void)[] = [];

  override deregister(index: number, onReleased?: () => void): void {
    super.deregister(index, () => void this.waiting.push(onReleased ?? ignore));
  }
}

const codeOf = (act: () => unknown): string => {
  try {
    act();
  } catch (error) {
    return (error as RpcError).code;
  }
  return "";
};

describe("region", () => {
  it("is a window on its memory, not a copy", () => {
    const { memory, region } = setUp();
    memory[8] = 77;
    expect([region.byteLength, region.bytes[0], region.access]).toEqual([100, 77, "read_write"]);
  });

  it("is registered anew for each grant, by other keys, and for as long as that lasts", () => {
    const { port, region } = setUp();
    expect(port.regions.size).toBe(0);
    const first = coreOf(region).grantTo(port, ignore);
    const second = coreOf(region).grantTo(port, ignore);
    expect(first.descriptor).toMatchObject({ bytes: 100, access: 3, segments: [{ bytes: 100 }] });
    expect(first.descriptor.segments[0]?.key).not.toBe(second.descriptor.segments[0]?.key);
    expect([port.regions.size, region.grants]).toEqual([2, 2]);
    first.release();
    first.release();
    expect([port.regions.size, region.grants]).toEqual([1, 1]);
    second.release();
    expect([port.regions.size, region.grants]).toEqual([0, 0]);
  });

  it("is lent as long as somebody may be in the middle of touching it", () => {
    const { region, released } = setUp(100, 2);
    const port = new SlowPort();
    let told = 0;
    const grant = coreOf(region).grantTo(port, ignore);
    region.dispose();
    grant.release(() => told++);
    expect([port.regions.size, region.grants, told]).toEqual([0, 1, 0]);
    port.waiting[0]?.();
    expect([region.grants, told, released.length]).toEqual([1, 0, 0]);
    port.waiting[1]?.();
    expect([region.grants, told, released.length]).toEqual([0, 1, 1]);
  });

  it("refuses new use once disposed, and lets go when the last call has ended", () => {
    const { port, core, region, released } = setUp();
    const grant = coreOf(region).grantTo(port, ignore);
    region.dispose();
    region.dispose();
    expect([port.regions.size, released.length]).toEqual([1, 0]);
    expect(codeOf(() => coreOf(region).grantTo(port, ignore))).toBe("failed_precondition");
    expect(codeOf(() => region.slice(0))).toBe("failed_precondition");
    grant.release();
    expect([port.regions.size, released]).toEqual([0, [core]]);
  });

  it("of no bytes is lent without being registered", () => {
    const { port, region } = setUp(0);
    expect(coreOf(region).grantTo(port, ignore).descriptor).toEqual({ bytes: 0, access: 3, segments: [] });
    expect([port.regions.size, region.grants, region.bytes.byteLength]).toEqual([0, 1, 0]);
  });

  it("gives slices registrations of their own", () => {
    const { port, region } = setUp();
    const slice = region.slice(10, 20);
    const grant = coreOf(slice).grantTo(port, ignore);
    const { descriptor } = grant;
    expect(descriptor.bytes).toBe(20);
    expect([...port.regions.values()].map((bytes) => [bytes[0], bytes.byteLength])).toEqual([[18, 20]]);
    expect([slice.grants, region.grants]).toEqual([1, 1]);
    grant.release();
    expect([port.regions.size, slice.grants, region.grants]).toEqual([0, 0, 0]);
  });

  it("ends its slices with it, and keeps what they have lent until it comes back", () => {
    const { port, core, region, released } = setUp();
    const slice = region.slice(50);
    const grant = coreOf(slice).grantTo(port, ignore);
    region.dispose();
    expect(codeOf(() => coreOf(slice).grantTo(port, ignore))).toBe("failed_precondition");
    expect([port.regions.size, released.length]).toEqual([1, 0]);
    grant.release();
    expect(port.regions.size).toBe(0);
    expect(released).toEqual([core]);
  });

  it("registers nothing when one of its segments cannot be", () => {
    const { region } = setUp(100, 4);
    const port = new FakePort();
    const { register } = FakePort.prototype;
    let left = 2;
    port.register = (...input) => {
      if (left-- === 0) throw new Error("no memory");
      return register.apply(port, input);
    };
    expect(() => coreOf(region).grantTo(port, ignore)).toThrow("no memory");
    expect([port.regions.size, region.grants]).toEqual([0, 0]);
  });

  it("has its keys known in this thread for as long as they are lent", () => {
    const { port, region } = setUp(100, 2);
    const grant = coreOf(region).grantTo(port, ignore);
    const { descriptor } = grant;
    const known = () => descriptor.segments.map(({ key }) => grantedHere(key)?.bytes.byteLength);
    expect(known()).toEqual([50, 50]);
    grant.release();
    expect(known()).toEqual([undefined, undefined]);
  });

  it.each([
    [-1, 1],
    [0, 101],
    [101, 0],
    [100, 1],
    [0.5, 1],
    [0, Number.NaN],
    [Number.MAX_SAFE_INTEGER, 1],
  ])("refuses the slice from %d of %d bytes", (offset, length) => {
    expect(codeOf(() => setUp().region.slice(offset, length))).toBe("out_of_range");
  });

  it("takes the slices at its very ends", () => {
    const { region } = setUp();
    expect([region.slice(0).byteLength, region.slice(100).byteLength, region.slice(99, 1).bytes[0]]).toEqual([
      100, 0, 107,
    ]);
  });
});

describe("a region of several views", () => {
  it("has their bytes in order, neighbours joined and empty ones left out", () => {
    const memory = new Uint8Array(100);
    const other = new Float64Array(4);
    const views = [
      memory.subarray(10, 20),
      new Uint8Array(0),
      new DataView(memory.buffer, 20, 30),
      memory.subarray(60, 70),
      other,
      memory.subarray(50, 60),
    ];
    const segments = exposable(views);
    expect(segments.map(({ byteOffset, byteLength }) => [byteOffset, byteLength])).toEqual([
      [10, 40],
      [60, 10],
      [0, 32],
      [50, 10],
    ]);
    expect(segments[2]?.buffer).toBe(other.buffer);
  });

  it("has no bytes in one place, and says where they are", () => {
    const { region } = setUp(100, 4);
    expect(() => region.bytes).toThrow("4 segments");
    expect(codeOf(() => region.bytes)).toBe("failed_precondition");
    expect(region.segments.map(({ byteLength }) => byteLength)).toEqual([25, 25, 25, 25]);
    expect(region.slice(30, 10).bytes).toEqual(Uint8Array.from({ length: 10 }, (_, i) => 5 + i));
  });

  it("gives slices over segments", () => {
    const { port, region } = setUp(100, 4);
    const slice = region.slice(20, 40).slice(4, 35);
    expect(slice.segments.map((each) => [each[0], each.byteLength])).toEqual([
      [24, 1],
      [0, 25],
      [0, 9],
    ]);
    expect(
      coreOf(slice)
        .grantTo(port, ignore)
        .descriptor.segments.map(({ bytes }) => bytes),
    ).toEqual([1, 25, 9]);
    expect(region.slice(25, 0).segments).toEqual([]);
  });
});

describe("revoking a region", () => {
  it("ends the calls that hold it or a slice of it, and resolves when the last has let go", async () => {
    const { port, region } = setUp();
    const revoked: string[] = [];
    const whole = coreOf(region).grantTo(port, () => revoked.push("whole"));
    const part = coreOf(region.slice(5)).grantTo(port, () => revoked.push("part"));
    const done = region.revoke().then(() => revoked.push("done"));
    expect(revoked).toEqual(["whole", "part"]);
    expect([region.revoked, region.disposed]).toEqual([true, true]);
    expect(() => coreOf(region).grantTo(port, ignore)).toThrow("the region has been revoked");
    whole.release();
    await new Promise(setImmediate);
    expect(revoked).toHaveLength(2);
    part.release();
    await done;
    expect(revoked).toEqual(["whole", "part", "done"]);
    await region.revoke();
  });

  it("does not wait for ever for peers that do not answer, and says what they may still touch", async () => {
    const { clock, port, region } = setUp();
    const ends = [region.slice(10, 20), region.slice(20, 30)].map((slice) => {
      const grant = coreOf(slice).grantTo(port, () => grant.onGivenUp());
      return grant;
    });
    let left: QuarantinedMemory | undefined;
    const revoked = region.revoke().then((value) => {
      left = value;
    });
    clock.advance(9999);
    await new Promise(setImmediate);
    expect(left).toBeUndefined();
    clock.advance(1);
    await revoked;
    expect([left, region.grants]).toEqual([{ quarantinedBytes: 40 }, 2]);
    for (const grant of ends) grant.release();
    expect([await region.revoke(), region.grants, clock.timers]).toEqual([{ quarantinedBytes: 0 }, 0, 0]);
  });

  it("is over at once when the last silent peer lets go", async () => {
    const { clock, port, region, released } = setUp();
    const grant = coreOf(region).grantTo(port, () => grant.onGivenUp());
    const revoked = region.revoke();
    clock.advance(5000);
    grant.release();
    expect([await revoked, released.length, clock.timers]).toEqual([{ quarantinedBytes: 0 }, 1, 0]);
  });

  it("leaves what the region beside a slice has lent", async () => {
    const { port, region } = setUp();
    const revoked: string[] = [];
    const whole = coreOf(region).grantTo(port, () => revoked.push("whole"));
    const slice = region.slice(5);
    coreOf(slice)
      .grantTo(port, () => revoked.push("part"))
      .release();
    await slice.revoke();
    expect([revoked, slice.revoked, region.revoked, region.grants]).toEqual([[], true, false, 1]);
    whole.release();
  });

  it("waits for calls while somebody waits for them, and ten seconds longer for their peers", async () => {
    const { clock, port, region } = setUp();
    const grant = coreOf(region).grantTo(port, ignore);
    let disposed = false;
    const done = region[Symbol.asyncDispose]().then(() => {
      disposed = true;
    });
    clock.advance(60_000);
    await new Promise(setImmediate);
    expect(disposed).toBe(false);
    grant.onGivenUp();
    clock.advance(10_000);
    await done;
    expect(region.grants).toBe(1);
    grant.release();
  });

  it("waits for the transfers of this side that use it", async () => {
    const { region, released } = setUp();
    coreOf(region.slice(5)).beginLocalUse();
    const order: string[] = [];
    const done = region[Symbol.asyncDispose]().then(() => order.push("done"));
    expect(released).toEqual([]);
    expect(() => coreOf(region).beginLocalUse()).toThrow("disposed");
    await new Promise(setImmediate);
    order.push("ended");
    coreOf(region).endLocalUse();
    await done;
    expect([order, released.length]).toEqual([["ended", "done"], 1]);
  });
});

describe("assertInside", () => {
  it("names what was asked and what there is", () => {
    expect(() => assertInside("put", 5, 6, 10)).toThrow(
      "[out_of_range] put: offset 5 and length 6 do not lie inside 10 bytes",
    );
    assertInside("put", 5, 5, 10);
  });
});

describe("exposable", () => {
  it.each([new Uint8Array(1), Buffer.alloc(1), new DataView(new ArrayBuffer(1)), new Float64Array(1)])(
    "takes %s",
    (view) => {
      expect(exposable(view)).toEqual(exposable([view]));
    },
  );

  it("takes memory shared between threads", () => {
    expect(exposable(new Uint8Array(new SharedArrayBuffer(10), 2, 3))).toHaveLength(1);
  });

  it.each([null, undefined, [1], new ArrayBuffer(1), "x"])("refuses %s", (view) => {
    expect(() => exposable(view)).toThrow(TypeError);
  });

  it("names the view that will not do", () => {
    const good = new Uint8Array(1);
    expect(() => exposable([good, "x"])).toThrow("view 1 must be");
    const gone = new DataView(new ArrayBuffer(8));
    structuredClone(gone.buffer, { transfer: [gone.buffer] });
    expect(() => exposable([good, good, gone])).toThrow("the memory of view 2 has been detached");
    expect(() => exposable(gone)).toThrow("the memory of view has been detached");
    const resizable = Reflect.construct(ArrayBuffer, [8, { maxByteLength: 16 }]) as ArrayBuffer;
    expect(() => exposable([new Uint8Array(resizable)])).toThrow("view 0 must not lie in a resizable");
  });

  it("takes 4096 segments and no more", () => {
    const pieces = Array.from({ length: 4097 }, () => new Uint8Array(new ArrayBuffer(2), 0, 1));
    expect(exposable(pieces.slice(1))).toHaveLength(4096);
    expect(() => exposable(pieces)).toThrow("the views make 4097 segments; the limit is 4096");
    const memory = new Uint8Array(5000);
    const joined = Array.from({ length: 5000 }, (_, i) => memory.subarray(i, i + 1));
    expect(exposable(joined)).toHaveLength(1);
  });

  it.each([undefined, "", "rw", 3])("refuses the access %s", (access) => {
    expect(() => resolveOptions("expose", { access }, exposeFields)).toThrow("expose: access ");
  });
});
