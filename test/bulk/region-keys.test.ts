import {
  bulk,
  type Engine,
  implement,
  type Region,
  type RegionKeys,
  type RemoteRegion,
  service,
  unary,
} from "cinnabar";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { grantOf } from "../../src/memory/remote-region.ts";
import type { RegionSegment } from "../../src/wire/region-descriptor.ts";
import { openEngine, type Pair, pair } from "../matrix/pair.ts";
import { transports } from "../matrix/providers.ts";
import { isSecured } from "../matrix/secured.ts";
import { type Deferred, deferred, failure, untilTurn } from "../matrix/wait.ts";
import { RawWriter } from "./support/raw-writer.ts";

const bytes = 20_000;
const Fill = service("fill.v1", {
  fill: unary({
    input: z.object({ into: bulk("read_write"), value: z.int(), waits: z.boolean().optional() }),
    output: z.object({ checked: z.int() }),
  }),
});

/** A service that fills what it is lent, and notes every key. */
function filling() {
  const lent: RegionSegment[] = [];
  const handles: { into: RemoteRegion<"read_write">; put: () => Promise<unknown> }[] = [];
  const began: Deferred<void>[] = [];
  const gate = deferred();
  const implementation = implement(Fill, {
    async fill({ into: region, value, waits }, call) {
      const into = region as RemoteRegion<"read_write">;
      lent.push(...grantOf(into).segments);
      const data = new Uint8Array(into.byteLength).fill(value);
      handles.push({ into, put: () => call.put(data, into) });
      await call.put(data, into);
      began.shift()?.resolve();
      if (waits) await gate.promise;
      // The owner is asked about the grant, too.
      return { checked: await call.put(data, into, { checksum: "crc32c" }) };
    },
  });
  return { lent, handles, began, gate, implementation };
}

const made = (engine: Engine) => engine.stats().ports.reduce((sum, port) => sum + port.registrationsMade, 0);
const madeBytes = (engine: Engine) =>
  engine.stats().ports.reduce((sum, port) => sum + port.registrationsMadeBytes, 0);
const registered = (engine: Engine) =>
  engine.stats().ports.reduce((sum, port) => sum + port.regions - port.registrations.idle, 0);

async function setUp(provider: (typeof transports)[number]) {
  const service = filling();
  // A raw writer can reach an engine that listens.
  const listening = await openEngine({ listen: provider.freshUrl(), heartbeatMs: provider.heartbeatMs });
  const there: Pair = await pair(provider, [service.implementation], {
    server: { onHandlerError: () => {} },
  });
  const peer = await listening.connect(there.url, { timeoutMs: provider.connectTimeoutMs });
  // A device knows a key at one port alone: the one that leads to the peer, which may be another than the listening one.
  const raw = await RawWriter.open(listening.stats().ports.at(-1)?.url as string);
  onTestFinished(() => raw.close());
  return { ...service, ...there, client: listening, peer, api: peer.client(Fill), raw };
}

const expose = (engine: Engine, keys: RegionKeys, memory = new Uint8Array(bytes)): Region<"read_write"> =>
  engine.expose(memory, { access: "read_write", keys });

describe.runIf(!isSecured).each(transports)("keys of a region over $name", (provider) => {
  it("are the same for every call of a peer, and registered once", async () => {
    const { client, api, lent } = await setUp(provider);
    using region = expose(client, "region");
    const [before, bytesBefore] = [made(client), madeBytes(client)];
    for (const value of [1, 2, 3]) {
      expect(await api.fill({ into: region, value })).toEqual({ checked: bytes });
      expect(region.bytes.every((byte) => byte === value)).toBe(true);
      expect(region.grants).toBe(0);
    }
    expect(new Set(lent.map(({ key }) => key)).size).toBe(1);
    expect([made(client) - before, madeBytes(client) - bytesBefore]).toEqual([1, bytes]);
    expect(registered(client)).toBe(1);
    region.dispose();
    await untilTurn(() => registered(client) === 0, "the registration ends with the region");
    expect(client.stats().regions).toBe(0);
  });

  it("are new for each call by default, and for each call of a slice", async () => {
    const { client, api, lent } = await setUp(provider);
    using each = expose(client, "call");
    using region = expose(client, "region");
    const before = made(client);
    const slice = region.slice(100, 50);
    for (const value of [1, 2]) {
      await api.fill({ into: each, value });
      await api.fill({ into: slice, value });
    }
    expect(new Set(lent.map(({ key }) => key)).size).toBe(4);
    expect([made(client) - before, registered(client)]).toEqual([4, 0]);
    expect([region.bytes[99], region.bytes[100], region.bytes[149], region.bytes[150]]).toEqual([0, 2, 2, 0]);
  });

  it("serve calls at once, and the end of one call takes nothing from another", async () => {
    const { client, api, began, gate, lent } = await setUp(provider);
    using region = expose(client, "region");
    const first = deferred();
    began.push(first);
    const waiting = api.fill({ into: region, value: 1, waits: true });
    await first.promise;
    await api.fill({ into: region, value: 2 });
    expect(region.grants).toBe(1);
    gate.resolve();
    expect(await waiting).toEqual({ checked: bytes });
    expect([region.grants, region.bytes[0], new Set(lent.map(({ key }) => key)).size]).toEqual([0, 1, 1]);
  });

  it("let nobody act for a call that has ended but who breaks the rules", async () => {
    const { client, api, handles, lent, raw } = await setUp(provider);
    using region = expose(client, "region");
    await api.fill({ into: region, value: 1 });
    // The engine of an honest peer refuses it.
    expect((await failure(handles[0]?.put() as Promise<unknown>)).code).toBe("failed_precondition");
    // A peer that was changed can, as long as the region lasts.
    expect(await raw.write(lent[0] as RegionSegment, bytes, 9)).toBe(0);
    expect(region.bytes.every((byte) => byte === 9)).toBe(true);
  });

  it("are dead when the region is disposed, and memory that is used again stays as it is", async () => {
    const { client, api, lent, raw } = await setUp(provider);
    const memory = new Uint8Array(bytes);
    {
      await using region = expose(client, "region", memory);
      await api.fill({ into: region, value: 1 });
    }
    expect(registered(client)).toBe(0);
    memory.fill(5);
    expect(await raw.write(lent[0] as RegionSegment, bytes, 9)).not.toBe(0);
    expect(memory.every((byte) => byte === 5)).toBe(true);
  });

  it("reach no byte behind the region", async () => {
    const { client, api, lent, raw } = await setUp(provider);
    const memory = new Uint8Array(2 * bytes);
    using region = expose(client, "region", memory.subarray(0, bytes));
    await api.fill({ into: region, value: 1 });
    expect(await raw.write(lent[0] as RegionSegment, bytes + 1, 9)).not.toBe(0);
    expect(memory.subarray(bytes).every((byte) => byte === 0)).toBe(true);
  });

  it("live until a revoked call has ended, and not longer", async () => {
    const { client, api, began, gate, lent, raw } = await setUp(provider);
    const region = expose(client, "region");
    const first = deferred();
    began.push(first);
    const call = api.fill({ into: region, value: 1, waits: true });
    const failed = failure(call);
    await first.promise;
    const revoked = region.revoke();
    expect((await failed).code).toBe("aborted");
    gate.resolve();
    expect(await revoked).toEqual({ quarantinedBytes: 0 });
    expect(registered(client)).toBe(0);
    expect(await raw.write(lent[0] as RegionSegment, bytes, 9)).not.toBe(0);
    expect(region.bytes[0]).toBe(1);
  });

  it("end with the session, and a new one has others", async () => {
    const { client, server, api, url, peer, lent, raw } = await setUp(provider);
    using region = expose(client, "region");
    await api.fill({ into: region, value: 1 });
    await peer.close();
    await untilTurn(() => registered(client) === 0, "the registration ends with the session");
    expect(await raw.write(lent[0] as RegionSegment, bytes, 9)).not.toBe(0);
    await untilTurn(() => server.stats().sessions === 1, "the server has the other session alone");
    const again = await client.connect(url, { timeoutMs: provider.connectTimeoutMs });
    await again.client(Fill).fill({ into: region, value: 2 });
    expect([region.bytes[0], lent[0]?.key === lent[1]?.key]).toEqual([2, false]);
  });

  it("are those of pooled memory, too, until it returns to the pool", async () => {
    const { client, api, lent } = await setUp(provider);
    const before = made(client);
    for (const value of [1, 2]) {
      using memory = client.pool.take(bytes, { access: "read_write", keys: "region" });
      for (let call = 0; call < 2; call++) await api.fill({ into: memory.region, value });
      expect(memory.bytes[bytes - 1]).toBe(value);
    }
    expect([made(client) - before, new Set(lent.map(({ key }) => key)).size]).toEqual([2, 2]);
    await untilTurn(() => client.stats().pool.takenBytes === 0, "the memory returns to the pool");
  });
});

describe("the option keys", () => {
  it.each(["session", "", 1, null])("is refused as %j", async (keys) => {
    const engine = await openEngine();
    const wrong = { access: "read", keys } as never;
    expect(() => engine.expose(new Uint8Array(8), wrong)).toThrow('keys must be "call" or "region"');
    expect(() => engine.pool.take(8, wrong)).toThrow('keys must be "call" or "region"');
    expect(engine.stats()).toMatchObject({ regions: 0, pool: { takenBytes: 0 } });
  });

  it("needs access for pooled memory", async () => {
    const engine = await openEngine();
    expect(() => engine.pool.take(8, { keys: "region" })).toThrow("pool.take: keys need access");
  });

  it("has no effect on a sealed session, which registers no memory of a user", async () => {
    const { implementation, lent } = filling();
    const security = { psk: { identity: "pair", key: Buffer.alloc(32, 3) } };
    const server = await openEngine({ listen: "tcp://127.0.0.1:0", serve: [implementation], security });
    const client = await openEngine({ security });
    const peer = await client.connect(server.urls[0] as string);
    using region = expose(client, "region");
    const whileIdle = registered(client);
    for (const value of [1, 2]) await peer.client(Fill).fill({ into: region, value });
    expect(region.bytes.every((byte) => byte === 2)).toBe(true);
    expect(lent[0]?.key).not.toBe(lent[1]?.key);
    await untilTurn(() => registered(client) === whileIdle, "staging memory is given back");
  });
});
