import { X509Certificate } from "node:crypto";
import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { Engine, type EngineOptions, implement, type Peer, serverStream, service, unary } from "cinnabar";
import { afterAll, beforeAll, describe, expect, it, onTestFinished, vi } from "vitest";
import { z } from "zod";
import { Authority, stamp } from "./support/authority.ts";
import { secured } from "./support/engines.ts";

const Who = service("who.v1", { ask: unary({ input: z.string(), output: z.any() }) });
const who = implement(Who, { ask: async (_text, call) => ({ ...call.identity }) });
const soon = { timeout: 20_000, interval: 1 };
let ca: Authority;
let other: Authority;

beforeAll(() => {
  ca = Authority.create("ca");
  other = Authority.create("other");
});

afterAll(() => {
  ca.remove();
  other.remove();
});

async function open(options: EngineOptions): Promise<Engine> {
  const engine = await Engine.open({ connectTimeoutMs: 20_000, ...options });
  onTestFinished(() => engine.close());
  return engine;
}

const fabrics = [
  ["tcp", () => "tcp://127.0.0.1:0"],
  ["net", () => "net://127.0.0.1:0"],
  ["shm", () => `shm://security-${process.pid}-${Math.random().toString(36).slice(2)}`],
] as const;

async function serverAt(listen: string, security: EngineOptions["security"]): Promise<Engine> {
  return open({ listen, serve: [who], ...(security && { security }) });
}

function expectExpired(error: Error): undefined {
  expect(error.message).toMatch(/was valid to|has expired/);
}

const settled = (engine: Engine) => ({
  sessions: engine.stats().sessions,
  refusals: engine.stats().security.refusals,
});

describe.each(fabrics)("a sealed session over %s", (scheme, url) => {
  const shm = scheme === "shm" ? ({ shm: "tls" } as const) : {};
  const server = (more = {}) =>
    serverAt(
      url(),
      secured(ca, "server.example", { names: "DNS:server.example,IP:127.0.0.1" }, { ...shm, ...more }),
    );
  const clientSecurity = (name = "client.example", more = {}) => secured(ca, name, {}, { ...shm, ...more });
  const target = { name: "server.example" };

  it("opens when both sides have proven who they are, and carries calls both ways", async () => {
    const serving = await server();
    const client = await open({ serve: [who], security: clientSecurity() });
    const peer = await client.connect(serving.urls[0] as string, target);
    expect(peer.identity).toMatchObject({ kind: "certificate", name: "server.example" });
    expect(await peer.client(Who).ask("")).toMatchObject({ kind: "certificate", name: "client.example" });
    expect(serving.stats().security.handshakes).toBe(1);
  });

  it("opens by a pre-shared key", async () => {
    const psk = { identity: "pair", key: Buffer.alloc(32, 5) };
    const serving = await serverAt(url(), { psk, ...shm });
    const client = await open({ security: { psk, ...shm } });
    const peer = await client.connect(serving.urls[0] as string);
    expect(await peer.client(Who).ask("")).toEqual({ kind: "psk", name: "pair" });
  });

  it("is refused with the reason, at both sides, when the connector's certificate does not hold", async () => {
    const serving = await server();
    const reasons: string[] = [];
    const hear = (message: unknown) => void reasons.push((message as { why: string }).why);
    subscribe("cinnabar:security.refused", hear);
    onTestFinished(() => void unsubscribe("cinnabar:security.refused", hear));
    const { cert, key } = other.issue("foreign.example", { names: "DNS:client.example" });
    const client = await open({ security: { tls: { cert, key, ca: ca.cert }, ...shm } });
    await expect(client.connect(serving.urls[0] as string, target)).rejects.toMatchObject({
      code: "unauthenticated",
      message: expect.stringContaining("authority that is not trusted"),
    });
    expect(reasons).toEqual([expect.stringContaining("authority that is not trusted")]);
    expect(settled(serving)).toEqual({ sessions: 0, refusals: { certificate: 1 } });
  });

  it("is refused by the connector when the acceptor proves another name, and the acceptor hears of it", async () => {
    const serving = await server();
    const client = await open({ security: clientSecurity() });
    await expect(client.connect(serving.urls[0] as string, { name: "other.example" })).rejects.toMatchObject({
      code: "unauthenticated",
      message: expect.stringContaining("does not prove the name other.example"),
    });
    await vi.waitFor(
      () => expect(settled(serving)).toEqual({ sessions: 0, refusals: { protocol: 1 } }),
      soon,
    );
    // The refusal of one has no effect on the next.
    expect((await client.connect(serving.urls[0] as string, target)).state).toBe("connected");
  });

  it("is never less: a plain engine is not spoken with, whichever side it is", async () => {
    const plain = await serverAt(url(), undefined);
    const client = await open({ security: clientSecurity() });
    await expect(client.connect(plain.urls[0] as string, target)).rejects.toMatchObject({
      code: "unauthenticated",
      message: expect.stringContaining("has no option `security`"),
    });
    const serving = await server();
    const plainClient = await open({});
    await expect(plainClient.connect(serving.urls[0] as string)).rejects.toMatchObject({
      code: "unauthenticated",
      message: expect.stringContaining("takes sealed sessions only"),
    });
  });

  it("takes plain peers beside sealed ones with allowPlain, and they have no identity", async () => {
    const serving = await server({ allowPlain: true });
    const plainClient = await open({});
    const plainPeer = await plainClient.connect(serving.urls[0] as string);
    expect(await plainPeer.client(Who).ask("")).toEqual({});
    const client = await open({ security: clientSecurity() });
    const peer = await client.connect(serving.urls[0] as string, target);
    expect(await peer.client(Who).ask("")).toMatchObject({ name: "client.example" });
  });

  it("has the first of the connector's ciphers that the acceptor takes too, or is refused", async () => {
    const serving = await server({ suites: ["chacha20-poly1305"] });
    const both = await open({
      security: clientSecurity("c.example", { suites: ["aes-256-gcm", "chacha20-poly1305"] }),
    });
    const peer = await both.connect(serving.urls[0] as string, target);
    expect(await peer.client(Who).ask("")).toMatchObject({ name: "c.example" });
    const aes = await open({ security: clientSecurity("d.example", { suites: ["aes-256-gcm"] }) });
    await expect(aes.connect(serving.urls[0] as string, target)).rejects.toThrow(
      "no cipher is accepted by both",
    );
  });

  it("ends when the certificate of its peer does, and opens again with a new one", async () => {
    const serving = await server();
    const names = "DNS:short.example";
    let pair = ca.issue("none", { names, to: stamp(-0.5) });
    const tls = { cert: () => pair.cert, key: () => pair.key, ca: ca.cert };
    const client = await open({ security: { tls, ...shm } });
    let peer: Peer | undefined;
    // Until one is valid for long enough to connect with, on a slow machine too.
    for (let seconds = 2; peer === undefined; seconds *= 2) {
      pair = ca.issue(`short-${seconds}`, { names, to: stamp((seconds + 1) / 86_400) });
      client.reloadSecurity();
      peer = await client.connect(serving.urls[0] as string, target).catch(expectExpired);
    }
    const opened = peer;
    const lost = new Promise<{ reason: Error }>((resolve) => opened.on("lost", resolve));
    expect((await lost).reason.message).toContain("was valid to");
    await expect(opened.client(Who).ask("")).rejects.toMatchObject({ code: "unauthenticated" });
    pair = ca.issue("long", { names });
    client.reloadSecurity();
    expect(await opened.client(Who).ask("")).toMatchObject({ name: "short.example" });
  });

  it("ends when a reload brings a list that has its peer, and others go on", async () => {
    let crl = ca.crl;
    const { cert, key } = ca.issue("strict", { names: "DNS:server.example" });
    const serving = await serverAt(url(), { tls: { cert, key, ca: ca.cert, crl: () => crl }, ...shm });
    const gone = await open({ security: clientSecurity("gone.example") });
    const staying = await open({ security: clientSecurity("staying.example") });
    const [peer, other] = await Promise.all(
      [gone, staying].map((client) => client.connect(serving.urls[0] as string, target)),
    );
    let losses = 0;
    other?.on("lost", () => losses++);
    const lost = new Promise<{ reason: Error }>((resolve) => peer?.on("lost", resolve));
    serving.reloadSecurity();
    expect(await peer?.client(Who).ask("")).toMatchObject({ name: "gone.example" });
    ca.revoke("gone.example");
    crl = ca.crl;
    serving.reloadSecurity();
    expect((await lost).reason).toMatchObject({
      code: "unauthenticated",
      message: expect.stringContaining("is not trusted any more: the certificate is revoked"),
    });
    await expect(peer?.client(Who).ask("")).rejects.toThrow("the certificate is revoked");
    expect(await other?.client(Who).ask("")).toMatchObject({ name: "staying.example" });
    expect(losses).toBe(0);
    // One for the session, others for each time that it wanted to come back.
    expect(serving.stats().security.refusals.certificate).toBeGreaterThanOrEqual(2);
  });

  it("ends at the side that connects when a reload takes the acceptor's authority away", async () => {
    const serving = await server();
    let trusted = [ca.cert, other.cert];
    const { cert, key } = ca.issue("distrusting", { names: "DNS:client.example" });
    const client = await open({ security: { tls: { cert, key, ca: () => trusted }, ...shm } });
    const peer = await client.connect(serving.urls[0] as string, target);
    const lost = new Promise<{ reason: Error }>((resolve) => peer.on("lost", resolve));
    trusted = [other.cert];
    client.reloadSecurity();
    expect((await lost).reason.message).toContain("of an authority that is not trusted any more");
    await expect(peer.client(Who).ask("")).rejects.toMatchObject({ code: "unauthenticated" });
    trusted = [ca.cert];
    client.reloadSecurity();
    expect(await peer.client(Who).ask("")).toMatchObject({ name: "client.example" });
  });

  it("ends when a reload finds its pre-shared key gone", async () => {
    const key = Buffer.alloc(32, 5);
    const known = new Map([
      ["one", key],
      ["two", key],
    ]);
    const serving = await serverAt(url(), { psk: { lookup: (identity) => known.get(identity) }, ...shm });
    const [one, two] = await Promise.all(
      ["one", "two"].map(async (identity) => {
        const client = await open({ security: { psk: { identity, key }, ...shm } });
        return client.connect(serving.urls[0] as string);
      }),
    );
    const lost = new Promise<{ reason: Error }>((resolve) => one?.on("lost", resolve));
    known.delete("one");
    serving.reloadSecurity();
    expect((await lost).reason.message).toContain("its pre-shared key is not known any more");
    await expect(one?.client(Who).ask("")).rejects.toMatchObject({ code: "unauthenticated" });
    expect(await two?.client(Who).ask("")).toEqual({ kind: "psk", name: "two" });
  });

  it("is not opened with the engine itself by a pre-shared key: what it says could be played back to it", async () => {
    const psk = { identity: "pair", key: Buffer.alloc(32, 5) };
    const engine = await serverAt(url(), { psk, ...shm });
    await expect(engine.connect(engine.urls[0] as string)).rejects.toMatchObject({
      code: "unauthenticated",
      message: expect.stringContaining("is this engine itself"),
    });
  });

  it("leaves nothing behind when the engine closes in the middle", async () => {
    const serving = await server();
    const client = await open({ security: clientSecurity() });
    const connecting = client.connect(serving.urls[0] as string, target);
    setImmediate(() => void client.close());
    await expect(connecting).rejects.toMatchObject({ code: "unavailable" });
    await vi.waitFor(() => expect(serving.stats().security.openHandshakes).toBe(0), soon);
  });
});

it("carries items of streams that are too long for a message", async () => {
  const Items = service("items.v1", {
    repeat: serverStream({ input: z.number(), output: z.instanceof(Uint8Array) }),
  });
  const items = implement(Items, {
    repeat: async function* (bytes) {
      yield new Uint8Array(bytes).fill(7);
    },
  });
  const server = await open({
    listen: "tcp://127.0.0.1:0",
    serve: [items],
    security: secured(ca, "server.example"),
  });
  const client = await open({ security: secured(ca, "client.example") });
  const peer = await client.connect(server.urls[0] as string);
  for await (const item of peer.client(Items).repeat(200_000))
    expect(item).toEqual(new Uint8Array(200_000).fill(7));
  expect(server.stats().counters.malformed + client.stats().counters.malformed).toBe(0);
});

it("a reload of renewed certificates loses no call and no session, and new sessions show the new one", async () => {
  let pair = ca.issue("renewed-0", { names: "DNS:server.example,IP:127.0.0.1" });
  const tls = { cert: () => pair.cert, key: () => pair.key, ca: ca.cert };
  const server = await open({ listen: "tcp://127.0.0.1:0", serve: [who], security: { tls } });
  const url = server.urls[0] as string;
  const client = await open({ security: secured(ca, "client.example") });
  const api = (await client.connect(url)).client(Who, { timeoutMs: 30_000 });
  let calls = 0;
  const over = new AbortController();
  const callers = Array.from({ length: 32 }, async () => {
    for (; !over.signal.aborted; calls++) expect(await api.ask("")).toMatchObject({ name: "client.example" });
  });
  const shown = new Set<string>();
  for (let round = 1; round <= 5; round++) {
    pair = ca.issue(`renewed-${round}`, { names: "DNS:server.example,IP:127.0.0.1" });
    for (let i = 0; i < 10; i++) server.reloadSecurity();
    const before = calls;
    const peer = await client.connect(url);
    await vi.waitFor(() => expect(calls).toBeGreaterThan(before + 32), soon);
    expect(peer.identity).toMatchObject({ fingerprint256: new X509Certificate(pair.cert).fingerprint256 });
    if (peer.identity?.kind === "certificate") shown.add(peer.identity.fingerprint256);
    peer.close();
  }
  over.abort();
  await Promise.all(callers);
  expect(shown.size).toBe(5);
  for (const engine of [server, client])
    expect(engine.stats()).toMatchObject({ counters: { sessionsLost: 0, callsFailed: 0 } });
});

it("reloadSecurity is an error where there is nothing to reload", async () => {
  const engine = await open({});
  expect(() => engine.reloadSecurity()).toThrow("neither security.tls nor security.psk");
});
