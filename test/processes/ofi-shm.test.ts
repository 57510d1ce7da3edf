import { describeFabrics } from "cinnabar/inspect";
import { afterEach, describe, expect, it } from "vitest";
import type { Footprint } from "./programs/commands.ts";
import { Memory } from "./programs/memory-service.ts";
import { Trial } from "./programs/trial.ts";
import { Child, sharedFiles } from "./support/child.ts";
import { freshName } from "./support/fabrics.ts";
import { endAllPeers, mebi, openEngine, outcome, startServer } from "./support/peers.ts";

/*
 * What the tests of conformance leave open of libfabric's shared memory. Engines of one process cannot meet over it, so
 * the tests of one process leave it out.
 */

afterEach(endAllPeers);

describe("ofi+shm", () => {
  it("moves bodies, streams of bytes and transfers between processes, both ways", async () => {
    const url = `ofi+shm://${freshName()}`;
    const server = new Child("shm-places", { listen: url });
    await server.report("listening");
    const client = new Child("shm-places", { url });
    const bytes = 3 << 20;
    expect(await client.report("moved")).toMatchObject({
      echoed: true,
      uploaded: bytes,
      downloaded: bytes,
      put: bytes,
      filled: true,
    });
  });

  it.each([1, 4096, 4097, mebi + 1, 16 * mebi])(
    "gets and puts %d bytes of a borrowed region",
    async (bytes) => {
      const child = new Child("memory", { listen: `ofi+shm://${freshName()}` });
      const { urls } = await child.report("listening");
      const engine = await openEngine();
      const api = (await engine.connect(urls[0])).client(Memory);
      await using borrowed = await engine.borrow(await api.share({ bytes, value: 7 }));
      const local = new Uint8Array(bytes);
      expect(await borrowed.get(local)).toBe(bytes);
      expect(local.every((byte) => byte === 7)).toBe(true);
      for (let i = 0; i < bytes; i++) local[i] = i % 251;
      expect(await borrowed.put(local, { checksum: "crc32c" })).toBe(bytes);
      const back = new Uint8Array(bytes);
      await borrowed.get(back, { checksum: "crc32c" });
      expect(Buffer.compare(back, local)).toBe(0);
    },
  );

  it("wakes an engine that has long been idle, at which no descriptor tells", async () => {
    const { server, url } = await startServer({ listen: `ofi+shm://${freshName()}` });
    const client = new Child("client", { url, holds: false });
    await client.report("connected");
    // An engine that polled without a pause would take all of a processor.
    expect(await server.ask<number>("idleShare", 1000)).toBeLessThan(0.2);
    expect(await client.ask("echo", { token: "wake" })).toMatchObject({ token: "wake" });
  });

  it("and shm name each other where they do not meet", async () => {
    const engine = await openEngine();
    for (const [own, other] of [["shm", "ofi+shm"] as const, ["ofi+shm", "shm"] as const]) {
      const name = freshName();
      const { server } = await startServer({ listen: `${other}://${name}` });
      await expect(engine.connect(`${own}://${name}`)).rejects.toThrow(
        `nobody listens at ${own}://${name}, but somebody does at ${other}://${name}: the two schemes do not meet`,
      );
      await server.destroy();
    }
    const nobody = `ofi+shm://${freshName()}`;
    await expect(engine.connect(nobody)).rejects.toThrow(
      `nobody listens at ${nobody}: no server of this user`,
    );
  });

  it("keeps a name for the engine that has it, and takes over that of a killed one", async () => {
    const name = freshName();
    const url = `ofi+shm://${name}`;
    const { server } = await startServer({ listen: url });
    await expect(openEngine({ listen: url })).rejects.toThrow(
      `the name "${name}" is taken by another engine`,
    );
    const engine = await openEngine();
    expect(await (await engine.connect(url)).client(Trial).echo({ token: "still there" })).toMatchObject({
      token: "still there",
    });
    await server.destroy();
    expect(sharedFiles(name)).not.toEqual([]);
    const { server: next } = await startServer({ listen: url });
    const other = await openEngine();
    expect(await (await other.connect(url)).client(Trial).echo({ token: "again" })).toMatchObject({
      token: "again",
    });
    await next.destroy();
  });

  it("loses a server that is killed at rest, and goes on with others", async () => {
    const first = await startServer({ listen: `ofi+shm://${freshName()}` });
    const second = await startServer({ listen: `ofi+shm://${freshName()}` });
    const engine = await openEngine({ heartbeatMs: 1000 });
    const doomed = (await engine.connect(first.url)).client(Trial);
    const other = (await engine.connect(second.url)).client(Trial);
    const held = outcome(doomed.hold({ key: "held" }));
    await first.server.report("held");
    await first.server.destroy();
    expect(await held).toBe("unavailable");
    expect(await other.echo({ token: "on" })).toMatchObject({ token: "on" });
    const atRest = { sessions: 1, calls: { out: 0 }, deadlines: 0, ports: [{ addresses: 1, freeSlots: 64 }] };
    await expect.poll(() => engine.stats()).toMatchObject(atRest);
  });

  it("tells the handlers of a client that is killed at rest, and serves others", async () => {
    const { server, url } = await startServer({ listen: `ofi+shm://${freshName()}`, heartbeatMs: 1000 });
    const client = new Child("client", { url, name: "doomed" });
    const engine = await openEngine();
    const trial = (await engine.connect(url)).client(Trial);
    await server.report("held");
    await client.destroy();
    expect(await server.report("aborted")).toMatchObject({ key: "doomed-0", code: "unavailable" });
    expect(await trial.echo({ token: "on" })).toMatchObject({ token: "on" });
    expect(await server.ask("stats")).toMatchObject({ sessions: 1, calls: { in: 0 }, deadlines: 0 });
  });

  it("has room for another peer when one has left, more often than it has room for", async () => {
    const { server, url } = await startServer({ listen: `ofi+shm://${freshName()}` });
    const visit = async () => {
      const engine = await openEngine();
      expect(await (await engine.connect(url)).client(Trial).echo({ token: "here" })).toMatchObject({
        token: "here",
      });
      await engine.close();
    };
    await visit();
    const before = await server.ask<Footprint>("footprint");
    // The provider has room for 256 at a time.
    for (let i = 0; i < 300; i++) await visit();
    await expect.poll(() => server.ask("stats")).toMatchObject({ sessions: 0, ports: [{ addresses: 0 }] });
    const after = await server.ask<Footprint>("footprint");
    expect(after.descriptors).toBeLessThanOrEqual(before.descriptors);
  });

  it("refuses to join engines of one process, which libfabric would crash", async () => {
    const url = `ofi+shm://${freshName()}`;
    const server = await openEngine({ listen: url });
    await expect((await openEngine()).connect(url)).rejects.toThrow("does not join engines of one process");
    await server.close();
  });

  it("is in the report of fabrics", () => {
    const report = describeFabrics().fabrics.find(({ scheme }) => scheme === "ofi+shm");
    expect(report).toMatchObject({ provider: "shm", available: true });
  });
});
