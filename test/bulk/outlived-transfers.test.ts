import { bulk, type Engine, implement, type Region, service, unary } from "cinnabar";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import type { RemoteGrant } from "../../src/memory/remote-region.ts";
import { pair } from "../matrix/pair.ts";
import { providers } from "../matrix/providers.ts";
import { isSecured } from "../matrix/secured.ts";
import { untilTurn } from "../matrix/wait.ts";
import { type Lent, RawTransfers } from "./support/raw-transfers.ts";

/** The service of somebody who hands on what it is lent. */
const Lending = service("lending.v1", {
  write: unary({ input: z.object({ into: bulk("write") }) }),
  read: unary({ input: z.object({ from: bulk("read") }) }),
});

const canary = 0x5a;
const lateByte = 0xee;
const bytes = 1 << 20;
const half = bytes / 2;
/** More than the kernel keeps for a connection, so that an answer nobody takes stands still. */
const longBytes = 32 << 20;

/** libfabric's own provider for tcp. ofi_rxm speaks another stream, and tells of no end of a transfer. */
const native = providers.filter(({ scheme }) => scheme === "tcp").slice(0, 1);

interface Call {
  readonly client: Engine;
  readonly region: Region;
  readonly lent: Lent;
  /** The peer's word that the call has ended has come: its caller has its memory back, if nobody is at it. */
  end(): Promise<void>;
}

/** A call whose region a third party knows too. */
async function lend(memory: Uint8Array, kind: "read" | "write"): Promise<Call & { url: string }> {
  const [provider] = native;
  if (provider === undefined) expect.fail("tcp is in the table");
  let take!: (lent: Lent) => void;
  const taken = new Promise<Lent>((resolve) => {
    take = resolve;
  });
  const hold = (region: object, { signal }: { signal: AbortSignal }) => {
    const { key, address } = (region as RemoteGrant).segments[0] as Lent;
    take({ key, address });
    return new Promise<void>((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
  };
  const { client, peer } = await pair(
    provider,
    [
      implement(Lending, {
        write: ({ into }, call) => hold(into, call),
        read: ({ from }, call) => hold(from, call),
      }),
    ],
    { client: { listen: provider.freshUrl() }, server: { onHandlerError: () => {} } },
  );
  const api = peer.client(Lending, { timeoutMs: 50_000 });
  const controller = new AbortController();
  const { signal } = controller;
  const region = client.expose(memory, { access: kind });
  const call =
    kind === "write"
      ? api.write({ into: region as Region<"write"> }, { signal })
      : api.read({ from: region as Region<"read"> }, { signal });
  const ended = call.catch(({ code }: { code: string }) => code);
  const lent = await taken;
  return {
    client,
    region,
    lent,
    url: client.urls[0] as string,
    async end() {
      controller.abort();
      expect(await ended).toBe("cancelled");
      await untilTurn(() => client.stats().calls.out === 0, "the peer has answered the cancel");
    },
  };
}

// Where bulk travels sealed, the provider is at no memory of a user's.
describe.skipIf(isSecured).each(native)("a transfer over $name that goes on after its call", () => {
  it("keeps the memory until its last byte, and no other begins", async () => {
    const memory = new Uint8Array(bytes).fill(canary);
    const { region, lent, url, end } = await lend(memory, "write");
    const raw = await RawTransfers.connect(url);
    raw.beginWrite(lent, bytes);
    raw.send(half, lateByte);
    await untilTurn(() => memory[half - 1] === lateByte, "half of it is written");
    await end();
    expect(region.grants).toBe(1);
    raw.send(half, lateByte);
    await untilTurn(() => region.grants === 0, "the memory comes back");
    expect(memory.every((byte) => byte === lateByte)).toBe(true);
    memory.fill(canary);
    raw.beginWrite(lent, bytes);
    raw.send(bytes, lateByte);
    await raw.closed;
    expect(memory.every((byte) => byte === canary)).toBe(true);
    region.dispose();
  });

  it("loses its connection when it stands still, and the memory comes back", async () => {
    const memory = new Uint8Array(bytes).fill(canary);
    const { client, region, lent, url, end } = await lend(memory, "write");
    const raw = await RawTransfers.connect(url);
    raw.beginWrite(lent, bytes);
    raw.send(half, lateByte);
    await untilTurn(() => memory[half - 1] === lateByte, "half of it is written");
    await end();
    const revoked = region.revoke();
    expect(region.grants).toBe(1);
    await raw.closed;
    expect(await revoked).toEqual({ quarantinedBytes: 0 });
    memory.fill(canary);
    expect(client.stats()).toMatchObject({ quarantinedBytes: 0, regions: 0, sessions: 1 });
    raw.send(half, lateByte);
    await new Promise(setImmediate);
    expect(memory.every((byte) => byte === canary)).toBe(true);
  });

  it("gives the memory back when its process is killed", async () => {
    const memory = new Uint8Array(bytes).fill(canary);
    const { region, lent, url, end } = await lend(memory, "write");
    const raw = await RawTransfers.connect(url);
    raw.beginWrite(lent, bytes);
    raw.send(half, lateByte);
    await untilTurn(() => memory[half - 1] === lateByte, "half of it is written");
    await end();
    expect(region.grants).toBe(1);
    raw.kill();
    await untilTurn(() => region.grants === 0, "the memory comes back");
    region.dispose();
  });

  it("keeps memory that is being read until all of it has left", async () => {
    const memory = new Uint8Array(longBytes).fill(canary);
    const { region, lent, url, end } = await lend(memory, "read");
    const raw = await RawTransfers.connect(url);
    raw.pause();
    raw.beginRead(lent, longBytes);
    const other = await RawTransfers.connect(url);
    other.beginRead(lent, bytes);
    await untilTurn(() => other.received >= bytes, "another reader has all it asked for");
    await end();
    expect(region.grants).toBe(1);
    raw.resume();
    await untilTurn(() => region.grants === 0, "the memory comes back");
    await untilTurn(() => raw.received > longBytes, "the reader has all of it");
    raw.kill();
    other.kill();
    region.dispose();
  });

  it("ends with its connection when nobody takes what is being read", async () => {
    const memory = new Uint8Array(longBytes).fill(canary);
    const { region, lent, url, end } = await lend(memory, "read");
    const raw = await RawTransfers.connect(url);
    raw.pause();
    raw.beginRead(lent, longBytes);
    const other = await RawTransfers.connect(url);
    other.beginRead(lent, bytes);
    await untilTurn(() => other.received >= bytes, "another reader has all it asked for");
    await end();
    const revoked = region.revoke();
    expect(region.grants).toBe(1);
    expect(await revoked).toEqual({ quarantinedBytes: 0 });
    raw.kill();
    other.kill();
  });
});
