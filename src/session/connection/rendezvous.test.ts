import { describe, expect, it } from "vitest";
import { FakePort } from "./fake-port.test-support.ts";
import { offerBody, pullBody } from "./rendezvous.ts";

const never = () => false;
const watching = (stop: () => boolean) => ({ stop, onMoved: () => {}, onReleased: () => {} });

describe("offerBody", () => {
  it("registers a copy of exactly the body, and lets go of it once", () => {
    const port = new FakePort();
    const bytes = new Uint8Array(50).fill(3);
    const { rendezvous, grant } = offerBody(port, bytes.subarray(10, 20));
    bytes.fill(0);
    expect(rendezvous.bytes).toBe(10);
    const [registered] = [...port.regions.values()];
    expect([
      registered?.byteLength,
      registered?.buffer.byteLength,
      registered?.every((byte) => byte === 3),
    ]).toEqual([10, 10, true]);
    grant.release();
    grant.release();
    expect(port.regions.size).toBe(0);
  });
});

describe("pullBody", () => {
  const rendezvous = { key: 9n, address: 0n, bytes: 16 };

  it("gives the body in memory of its own, no longer registered", async () => {
    const port = new FakePort();
    const pulling = pullBody(port, 1, rendezvous, watching(never));
    port.pulls[0]?.into.fill(7);
    port.pulls[0]?.settle(0);
    const pulled = await pulling;
    expect("body" in pulled && [pulled.body.byteLength, pulled.body[15]]).toEqual([16, 7]);
    expect(port.regions.size).toBe(0);
  });

  it.each([5, 103])("gives the provider's error %i", async (status) => {
    const port = new FakePort();
    const pulling = pullBody(port, 1, rendezvous, watching(never));
    port.pulls[0]?.settle(status);
    expect(await pulling).toEqual({ status });
    expect(port.regions.size).toBe(0);
  });

  it("gives no body when it is stopped first", async () => {
    const port = new FakePort();
    expect(
      await pullBody(
        port,
        1,
        rendezvous,
        watching(() => true),
      ),
    ).toEqual({ status: 0 });
    expect([port.pulls.length, port.regions.size]).toEqual([0, 0]);
  });
});
