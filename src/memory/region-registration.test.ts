import { describe, expect, it } from "vitest";
import { FakeClock } from "../base/time/fake-clock.test-support.ts";
import { access } from "../fabric/port.ts";
import { FakePort } from "../session/connection/fake-port.test-support.ts";
import { RegionCore } from "./region-core.ts";
import { grantedHere, LastingRegistrations } from "./region-registration.ts";

const ignore = () => {};

/** Reports that withdrawn memory is unused when the test says so. */
class SlowPort extends FakePort {
  readonly waiting: (() => void)[] = [];

  override deregister(index: number, onReleased?: () => void): void {
    super.deregister(index, () => void this.waiting.push(onReleased ?? ignore));
  }
}

function setUp<P extends FakePort>(port: P) {
  const released: RegionCore[] = [];
  const clock = new FakeClock();
  const listener = { clock, onRegionReleased: (region: RegionCore) => void released.push(region) };
  const segments = [new Uint8Array(60), new Uint8Array(40)];
  const core = new RegionCore(listener, segments, "write", { keys: "region" });
  const lasting = new LastingRegistrations(port);
  const grant = (onRevoke = ignore) => core.grantTo(port, onRevoke, lasting);
  return { port, clock, core, lasting, grant, released };
}

describe("memory that the port does not let peers write", () => {
  it.each(["write", "read_write"] as const)("is refused to a peer that may %s it", (may) => {
    for (const keys of ["call", "region"] as const) {
      const port = new FakePort();
      const segments = [new Uint8Array(60), new Uint8Array(40)];
      port.unpinned.add((segments[1] as Uint8Array).buffer);
      const core = new RegionCore({ onRegionReleased: ignore }, segments, may, { keys });
      expect(() => core.grantTo(port, ignore, new LastingRegistrations(port))).toThrow("pins no files");
      expect([port.rights.size, core.grants]).toEqual([0, 0]);
    }
  });

  it("is granted to a peer that may read it", () => {
    const port = new FakePort();
    const memory = new Uint8Array(60);
    port.unpinned.add(memory.buffer);
    const core = new RegionCore({ onRegionReleased: ignore }, [memory], "read");
    core.grantTo(port, ignore);
    expect([...port.rights.values()]).toEqual([access.remoteRead]);
  });
});

describe("a registration that outlives calls", () => {
  it("serves all calls of a session, and each session has its own", () => {
    const { port, core, grant } = setUp(new FakePort());
    const [first, second] = [grant(), grant()];
    expect(second.descriptor).toEqual(first.descriptor);
    const other = core.grantTo(port, ignore, new LastingRegistrations(port));
    expect(other.descriptor.segments[0]?.key).not.toBe(first.descriptor.segments[0]?.key);
    expect([port.regions.size, core.grants]).toEqual([4, 3]);
    for (const held of [first, second, other]) held.release();
    expect([port.regions.size, core.grants]).toEqual([4, 0]);
    core.dispose();
    expect(port.regions.size).toBe(0);
  });

  it("is known on this thread until its keys are withdrawn", () => {
    const { core, grant } = setUp(new FakePort());
    const [first, second] = [grant(), grant()];
    const key = first.descriptor.segments[0]?.key as bigint;
    first.release();
    expect(grantedHere(key)?.bytes.byteLength).toBe(60);
    second.release();
    core.dispose();
    expect(grantedHere(key)).toBeUndefined();
  });

  it("gives the memory of a call back by the peer's word while the session is open", () => {
    const { port, grant } = setUp(new SlowPort());
    let told = 0;
    grant().release(() => told++);
    expect([told, port.waiting.length]).toEqual([1, 0]);
  });

  it("keeps a disposed region until its last call has ended and nobody is at the memory", async () => {
    const { port, core, grant, released } = setUp(new SlowPort());
    const held = grant();
    core.dispose();
    const idle = core.idle();
    expect([port.regions.size, released.length]).toEqual([2, 0]);
    held.release();
    expect([port.regions.size, released.length, core.grants]).toEqual([0, 0, 0]);
    port.waiting[0]?.();
    expect(released.length).toBe(0);
    port.waiting[1]?.();
    expect(released).toEqual([core]);
    expect(await idle).toEqual({ quarantinedBytes: 0 });
  });

  it("counts as quarantined when who waits for the region has waited long enough", async () => {
    const { clock, core, grant } = setUp(new SlowPort());
    grant().release();
    core.dispose();
    const idle = core.idle();
    clock.advance(10_000);
    expect(await idle).toEqual({ quarantinedBytes: 100 });
  });

  it("ends with the session at once when no call uses it", () => {
    const { port, lasting, grant, released } = setUp(new FakePort());
    grant().release();
    expect(port.regions.size).toBe(2);
    expect(lasting.end()).toEqual([]);
    expect([port.regions.size, released.length]).toEqual([0, 0]);
  });

  it("is handed over at the end of the session while a call uses it, whose memory comes back with it", () => {
    const { port, core, lasting, grant, released } = setUp(new SlowPort());
    const held = grant();
    const handedOver = lasting.end();
    expect(handedOver.map(({ bytes, memory }) => [bytes, memory])).toEqual([[100, core.segments]]);
    const told: string[] = [];
    held.release(() => told.push("call"));
    core.dispose();
    handedOver[0]?.release(() => told.push("session"));
    expect([told, core.grants, port.regions.size]).toEqual([[], 1, 0]);
    for (const letGo of port.waiting) letGo();
    expect([told.sort(), core.grants, released]).toEqual([["call", "session"], 0, [core]]);
    handedOver[0]?.release(() => told.push("again"));
    expect(told).toContain("again");
  });

  it("is made anew for the next session", () => {
    const { port, core, lasting, grant } = setUp(new FakePort());
    const first = grant();
    first.release();
    lasting.end();
    const next = core.grantTo(port, ignore, new LastingRegistrations(port));
    expect(next.descriptor.segments[0]?.key).not.toBe(first.descriptor.segments[0]?.key);
    expect(port.regions.size).toBe(2);
  });

  it("is not made when the provider refuses one of its segments", () => {
    class FullPort extends FakePort {
      override register(...input: Parameters<FakePort["register"]>) {
        if (this.regions.size === 1) throw new Error("no memory");
        return super.register(...input);
      }
    }
    const { port, core, grant, released } = setUp(new FullPort());
    expect(() => grant()).toThrow("no memory");
    core.dispose();
    expect([port.regions.size, core.grants, released]).toEqual([0, 0, [core]]);
  });
});
