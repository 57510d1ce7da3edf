import { describe, expect, it } from "vitest";
import { fabricError } from "../base/errors/fabric-error.ts";
import { FakeClock } from "../base/time/fake-clock.test-support.ts";
import { access } from "../fabric/port.ts";
import { FakePort } from "../session/connection/fake-port.test-support.ts";
import { usersOf, watchUsers } from "./memory-users.ts";
import { dropIdleRegistrations, hold, RegistrationCache, registrations } from "./registration-cache.ts";

const kibibyte = 1024;

function setUp(maxIdle = 4, maxIdleBytes = 64 * kibibyte) {
  const clock = new FakeClock();
  const port = new FakePort();
  const cache = new RegistrationCache(port, clock, { maxIdle, maxIdleBytes });
  /** The buffers that are registered now. */
  const registered = () => [...port.regions.values()].map(({ buffer }) => buffer);
  return { clock, port, cache, registered };
}

/** The types of Node 20 do not know the option. */
interface Resizable<B> {
  new (bytes: number, options: { readonly maxByteLength: number }): B;
}
const GrowableBuffer = SharedArrayBuffer as unknown as Resizable<
  SharedArrayBuffer & { grow(bytes: number): void }
>;
const ResizableBuffer = ArrayBuffer as unknown as Resizable<ArrayBuffer>;

const view = (bytes = kibibyte) => new Uint8Array(bytes);

describe("the registration cache", () => {
  it("registers a view's whole buffer, once, and says where the view lies in it", () => {
    const { port, cache } = setUp();
    const buffer = new ArrayBuffer(kibibyte);
    const whole = cache.hold(new Uint8Array(buffer));
    const part = cache.hold(new Float64Array(buffer, 64, 4));
    expect([whole.offset, part.offset, part.memory]).toEqual([0, 64, whole.memory]);
    expect([...port.regions.values()].map(({ byteLength }) => byteLength)).toEqual([kibibyte]);
    whole.release();
    part.release();
    cache.hold(new DataView(buffer, 10, 1)).release();
    expect(port.regions.size).toBe(1);
    expect(cache.stats()).toEqual({
      held: 0,
      heldBytes: 0,
      idle: 1,
      idleBytes: kibibyte,
      hits: 2,
      misses: 1,
      evictions: 0,
      invalidations: 0,
    });
  });

  it("registers what the port cannot write to for puts alone, and says so", () => {
    const { port, cache } = setUp();
    const file = view();
    port.unpinned.add(file.buffer);
    expect(cache.holdTarget(file)).toBeUndefined();
    const held = cache.hold(file);
    expect([...port.rights.values()]).toEqual([access.source]);
    expect(cache.holdTarget(file)).toBeUndefined();
    held.release();
    expect(cache.stats()).toMatchObject({ held: 0, idle: 1, hits: 1, misses: 1 });
    cache.holdTarget(view())?.release();
    expect([...port.rights.values()]).toEqual([access.source, access.local]);
  });

  it("drops a registration that has been idle for a second, never one that is held", () => {
    const { clock, port, cache } = setUp();
    const held = cache.hold(view());
    const other = view();
    cache.hold(other).release();
    clock.advance(999);
    expect(port.regions.size).toBe(2);
    clock.advance(501);
    expect([port.regions.size, clock.timers]).toEqual([1, 0]);
    clock.advance(60_000);
    expect(port.regions.size).toBe(1);
    held.release();
    clock.advance(1500);
    expect([port.regions.size, clock.timers, cache.stats().idleBytes]).toEqual([0, 0, 0]);
  });

  it("gives up what lies idle, the oldest first, where no more memory may be locked", () => {
    const { port, cache, registered } = setUp();
    const held = cache.hold(view());
    const views = [view(), view(), view()];
    for (const each of views) cache.hold(each).release();
    const register = port.register.bind(port);
    // A port that may lock three buffers.
    port.register = (...memory) => {
      if (port.regions.size >= 3) throw fabricError({ provider: "fake", op: "fi_mr_reg", code: 12 });
      return register(...memory);
    };
    const last = view();
    cache.hold(last).release();
    expect(registered()).toEqual([expect.anything(), views[2]?.buffer, last.buffer]);
    expect(cache.stats().evictions).toBe(2);
    // Registrations in use stay: then the transfer fails.
    port.register = () => {
      throw fabricError({ provider: "fake", op: "fi_mr_reg", code: 12 });
    };
    expect(() => cache.hold(view())).toThrow("ENOMEM");
    expect(registered()).toHaveLength(1);
    held.release();
  });

  it("keeps a registration that is used again and again, and asks for no time in between", () => {
    const { clock, cache } = setUp();
    const bytes = view();
    for (let i = 0; i < 50; i++) {
      cache.hold(bytes).release();
      clock.advance(900);
    }
    expect(cache.stats()).toMatchObject({ hits: 49, misses: 1 });
    expect(clock.timers).toBe(1);
  });

  it("drops the one idle for longest when there are too many, or too many bytes", () => {
    const { port, cache, registered } = setUp(2, 10 * kibibyte);
    const [first, second, third, large] = [view(), view(), view(), view(9 * kibibyte)];
    for (const bytes of [first, second]) cache.hold(bytes).release();
    cache.hold(first).release();
    cache.hold(third).release();
    expect(registered()).toEqual([first.buffer, third.buffer]);
    cache.hold(large).release();
    expect(registered()).toEqual([third.buffer, large.buffer]);
    expect(cache.stats()).toMatchObject({ idle: 2, idleBytes: 10 * kibibyte, evictions: 2 });
    const all = Array.from({ length: 10 }, () => cache.hold(view()));
    expect([port.regions.size, cache.stats().held]).toEqual([12, 10]);
    for (const each of all) each.release();
    expect(cache.stats()).toMatchObject({ held: 0, idle: 2, idleBytes: 2 * kibibyte });
  });

  it("registers the view alone where its buffer is more than may lie idle, and keeps nothing", () => {
    const { port, cache } = setUp(4, 10 * kibibyte);
    const large = new Uint8Array(new ArrayBuffer(11 * kibibyte), 100, 50);
    const held = cache.hold(large);
    expect([...port.regions.values()].map(({ byteOffset, byteLength }) => [byteOffset, byteLength])).toEqual([
      [100, 50],
    ]);
    expect([held.offset, cache.stats().held]).toEqual([0, 1]);
    held.release();
    held.release();
    expect([port.regions.size, cache.stats().held, cache.stats().idle]).toEqual([0, 0, 0]);
  });

  it("forgets a buffer that was transferred away, idle or held", () => {
    const { clock, port, cache } = setUp();
    const [idle, busy] = [view(), view()];
    cache.hold(idle).release();
    const held = cache.hold(busy);
    for (const { buffer } of [idle, busy]) structuredClone(buffer, { transfer: [buffer] });
    clock.advance(500);
    expect([port.regions.size, cache.stats().invalidations]).toEqual([1, 1]);
    held.release();
    expect([port.regions.size, cache.stats().invalidations, cache.stats().idle]).toEqual([0, 2, 0]);
  });

  it("registers shared memory that has grown anew, and lets the old registration go with its last user", () => {
    const { port, cache } = setUp();
    const buffer = new GrowableBuffer(kibibyte, { maxByteLength: 4 * kibibyte });
    const before = cache.hold(new Uint8Array(buffer, 0, 10));
    buffer.grow(2 * kibibyte);
    const after = cache.hold(new Uint8Array(buffer, kibibyte, 10));
    expect(after.memory.index).not.toBe(before.memory.index);
    expect(cache.stats()).toMatchObject({
      held: 2,
      heldBytes: 3 * kibibyte,
      invalidations: 1,
      hits: 0,
      misses: 2,
    });
    before.release();
    expect([...port.regions.values()].map(({ byteLength }) => byteLength)).toEqual([2 * kibibyte]);
    after.release();
    expect(cache.stats()).toMatchObject({ held: 0, heldBytes: 0, idle: 1, idleBytes: 2 * kibibyte });
  });

  it("keeps nothing of a registration that was refused", () => {
    const { port, cache } = setUp();
    port.refuseMemory = new Error("no room for pages");
    const bytes = view();
    watchUsers(bytes.buffer, () => {});
    expect(() => cache.hold(bytes)).toThrow("no room for pages");
    expect([cache.stats().held, cache.stats().idle, usersOf(bytes.buffer)]).toEqual([0, 0, 0]);
    port.refuseMemory = undefined;
    const held = cache.hold(bytes);
    expect([cache.stats().misses, usersOf(bytes.buffer)]).toEqual([2, 1]);
    held.release();
    expect(usersOf(bytes.buffer)).toBe(0);
  });

  it("drops what lies idle when its port is about to close", () => {
    const { clock, port, cache } = setUp();
    const held = cache.hold(view());
    cache.hold(view()).release();
    cache.dropIdle();
    expect([port.regions.size, clock.timers]).toEqual([1, 0]);
    held.release();
    cache.dropIdle();
    expect([port.regions.size, clock.timers]).toEqual([0, 0]);
  });
});

describe("hold", () => {
  it("keeps a cache for each port", () => {
    const [one, other] = [new FakePort(), new FakePort()];
    const bytes = view();
    hold(one, bytes).release();
    hold(one, bytes).release();
    expect([registrations(one).hits, registrations(other).misses, one.regions.size]).toEqual([1, 0, 1]);
    dropIdleRegistrations(one);
    dropIdleRegistrations(other);
    expect([one.regions.size, registrations(one).idle]).toEqual([0, 0]);
  });

  it("refuses memory that is not there, and memory that may shrink", () => {
    const port = new FakePort();
    const gone = view();
    structuredClone(gone.buffer, { transfer: [gone.buffer] });
    expect(() => hold(port, gone)).toThrow("[failed_precondition] the local memory has been detached");
    expect(() => hold(port, new Uint8Array(0))).toThrow("an empty view cannot be registered");
    const resizable = new Uint8Array(new ResizableBuffer(16, { maxByteLength: 32 }));
    expect(() => hold(port, resizable)).toThrow("must not lie in a resizable ArrayBuffer");
    expect(port.regions.size).toBe(0);
  });
});
