import { describe, expect, it } from "vitest";
import { takeBodyMemory } from "../../wire/body-memory.ts";
import { FakePort } from "./fake-port.test-support.ts";
import { offerBody, pullBody } from "./rendezvous.ts";

const never = () => false;
const watching = (stop: () => boolean) => ({ stop, onMoved: () => {}, onReleased: () => {} });

describe("offerBody", () => {
  it("registers exactly the body, and lets go of it once", () => {
    const port = new FakePort();
    const memory = takeBodyMemory(50).fill(3);
    const { rendezvous, grant } = offerBody(port, 0, memory.subarray(10, 20));
    expect(rendezvous.bytes).toBe(10);
    expect([...port.regions.values()]).toEqual([new Uint8Array(10).fill(3)]);
    grant.release();
    grant.release();
    expect(port.regions.size).toBe(0);
    const again = takeBodyMemory(50);
    expect(again.buffer).toBe(memory.buffer);
    expect(takeBodyMemory(50).buffer).not.toBe(memory.buffer);
  });

  it("keeps the memory for as long as the peer may read it", () => {
    const port = new FakePort();
    const releases: (() => void)[] = [];
    port.deregister = (_index, onReleased) => void releases.push(() => onReleased?.());
    const memory = takeBodyMemory(70_000);
    const { grant } = offerBody(port, 0, memory);
    grant.release();
    expect(takeBodyMemory(70_000).buffer).not.toBe(memory.buffer);
    for (const release of releases) release();
    expect(takeBodyMemory(70_000).buffer).toBe(memory.buffer);
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
