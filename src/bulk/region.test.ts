import { describe, expect, it } from "vitest";
import type { RpcError } from "../errors/rpc-error.ts";
import { FakePort } from "../session/fake-port.test-support.ts";
import { assertExposable, assertInside, Region } from "./region.ts";

function setUp(bytes = 100) {
  const released: Region[] = [];
  const owner = { onRegionReleased: (region: Region) => void released.push(region) };
  const memory = Uint8Array.from({ length: bytes + 8 }, (_, i) => i);
  const region = new Region(owner, memory.subarray(8), "read_write");
  return { port: new FakePort(), released, memory, region };
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

  it("is registered when first lent, and stays so while it lives", () => {
    const { port, region } = setUp();
    expect(port.regions.size).toBe(0);
    const first = region.lend(port);
    const second = region.lend(port);
    expect(first.descriptor).toEqual({ ...second.descriptor, bytes: 100, access: 3 });
    expect([port.regions.size, region.loans]).toEqual([1, 2]);
    first.loan.release();
    second.loan.release();
    expect([port.regions.size, region.loans]).toEqual([1, 0]);
    region.dispose();
    expect(port.regions.size).toBe(0);
  });

  it("refuses new use once disposed, and lets go when the last call has ended", () => {
    const { port, region, released } = setUp();
    const { loan } = region.lend(port);
    region.dispose();
    region.dispose();
    expect([port.regions.size, released.length]).toEqual([1, 0]);
    expect(codeOf(() => region.lend(port))).toBe("failed_precondition");
    expect(codeOf(() => region.slice(0))).toBe("failed_precondition");
    loan.release();
    expect([port.regions.size, released.length]).toEqual([0, 1]);
  });

  it("is registered on each port it is lent over", () => {
    const { port, region } = setUp();
    const other = new FakePort();
    region.lend(port).loan.release();
    region.lend(other).loan.release();
    region.dispose();
    expect([port.regions.size, other.regions.size]).toEqual([0, 0]);
  });

  it("of no bytes is lent without being registered", () => {
    const { port, region } = setUp(0);
    expect(region.lend(port).descriptor).toEqual({ key: 0n, address: 0n, bytes: 0, access: 3 });
    expect(port.regions.size).toBe(0);
  });

  it("gives slices a registration of their own, for the time they are lent", () => {
    const { port, region } = setUp();
    const slice = region.slice(10, 20);
    const { descriptor, loan } = slice.lend(port);
    expect(descriptor.bytes).toBe(20);
    expect([...port.regions.values()].map((bytes) => [bytes[0], bytes.byteLength])).toEqual([[18, 20]]);
    loan.release();
    expect(port.regions.size).toBe(0);
  });

  it("ends its slices with it, and keeps what they have lent until it comes back", () => {
    const { port, region, released } = setUp();
    const slice = region.slice(50);
    const { loan } = slice.lend(port);
    region.dispose();
    expect(codeOf(() => slice.lend(port))).toBe("failed_precondition");
    expect(port.regions.size).toBe(1);
    loan.release();
    expect(port.regions.size).toBe(0);
    expect(released).toEqual([region]);
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

describe("assertInside", () => {
  it("names what was asked and what there is", () => {
    expect(() => assertInside("put", 5, 6, 10)).toThrow(
      "[out_of_range] put: offset 5 and length 6 do not lie inside 10 bytes",
    );
    assertInside("put", 5, 5, 10);
  });
});

describe("assertExposable", () => {
  it.each([new Uint8Array(1), Buffer.alloc(1), new DataView(new ArrayBuffer(1)), new Float64Array(1)])(
    "takes %s",
    (view) => {
      for (const access of ["read", "write", "read_write"])
        expect(() => assertExposable(view, access)).not.toThrow();
    },
  );

  it.each([null, undefined, [1], new ArrayBuffer(1), "x"])("refuses %s", (view) => {
    expect(() => assertExposable(view, "read")).toThrow(TypeError);
  });

  it.each([undefined, "", "rw", 3])("refuses the access %s", (access) => {
    expect(() => assertExposable(new Uint8Array(1), access)).toThrow("expose: access must be");
  });
});
