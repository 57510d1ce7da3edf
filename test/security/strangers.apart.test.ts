import { Engine, implement, type Peer, service, unary } from "cinnabar";
import { afterAll, beforeAll, describe, expect, it, onTestFinished, vi } from "vitest";
import { z } from "zod";
import { locate } from "../../src/fabric/target.ts";
import { mostForAddress } from "../../src/session/opening/handshake-places.ts";
import { ShareOfTime } from "../../src/session/opening/share-of-time.ts";
import { frameKind } from "../../src/wire/frame.ts";
import { withTerms } from "../../src/wire/hello.ts";
import { isOverNet } from "../matrix/over-net.ts";
import { Authority } from "./support/authority.ts";
import { secured } from "./support/engines.ts";
import { anyUrl } from "./support/fabric.ts";
import { firstFlight, Stranger } from "./support/stranger.ts";

const Echo = service("echo.v1", { echo: unary({ input: z.string(), output: z.string() }) });
const echo = implement(Echo, { echo: async (text) => text });
let ca: Authority;

beforeAll(() => {
  ca = Authority.create("ca");
});

afterAll(() => ca.remove());

async function serve(handshakes = {}): Promise<Engine> {
  const engine = await Engine.open({
    listen: anyUrl,
    serve: [echo],
    security: secured(ca, "server.example", {}, { handshakes }),
  });
  onTestFinished(() => engine.close());
  return engine;
}

async function honest(server: Engine): Promise<Peer> {
  const client = await Engine.open({ security: secured(ca, "client.example"), connectTimeoutMs: 20_000 });
  onTestFinished(() => client.close());
  return client.connect(server.urls[0] as string);
}

async function stranger(server: Engine): Promise<Stranger> {
  const made = await Stranger.at(server.urls[0] as string);
  onTestFinished(() => made[Symbol.dispose]());
  return made;
}

/** Where the acceptor that has answered the stranger waits for its frames. */
function pathTo({ heard }: Stranger): { session: number; nonce: bigint } {
  const terms = heard.find(({ word }) => word === withTerms)?.body as Uint8Array;
  const view = new DataView(terms.buffer);
  return { session: view.getUint32(0, true), nonce: view.getBigUint64(8, true) };
}

const security = (engine: Engine) => engine.stats().security;

describe("strangers", () => {
  it("that say hello and then nothing take a bounded number of places", async () => {
    const server = await serve({ maxOpen: 64, timeoutMs: 60_000 });
    const flood = await stranger(server);
    const flight = await firstFlight(ca);
    for (let i = 0; i < 200; i++) await flood.sayHello(flood.hello({ flight }));
    await flood.until(() => (security(server).refusals.crowded ?? 0) === 200 - mostForAddress, "full places");
    expect(security(server).openHandshakes).toBe(mostForAddress);
    expect(server.stats().sessions).toBe(0);
    // Somebody else gets in beside them.
    expect(await (await honest(server)).client(Echo).echo("hi")).toBe("hi");
    expect(security(server)).toMatchObject({ openHandshakes: mostForAddress, handshakes: 1 });
  });

  it("that say hello and then nothing keep their places for a bounded time", async () => {
    const server = await serve({ timeoutMs: 300 });
    const someone = await stranger(server);
    const flight = await firstFlight(ca);
    for (let i = 0; i < 5; i++) await someone.sayHello(someone.hello({ flight }));
    await someone.until(() => security(server).refusals.time === 5, "end of the handshakes");
    expect(security(server).openHandshakes).toBe(0);
  });

  // Over net a hello can only name the connection by which it comes.
  it.skipIf(isOverNet)("that name the server's own address keep a place until it answers", async () => {
    const server = await serve({ timeoutMs: 60_000 });
    const someone = await stranger(server);
    const { address } = await someone.port.route(await locate(server.urls[0] as string));
    const flight = await firstFlight(ca);
    for (let i = 0; i < 5; i++) await someone.sayHello(someone.hello({ flight, address }));
    await someone.until(() => security(server).refusals.protocol === 5, "end of the handshakes");
    expect(security(server).openHandshakes).toBe(0);
    expect(await (await honest(server)).client(Echo).echo("hi")).toBe("hi");
  });

  it("that send a byte now and then keep their places no longer", async () => {
    const server = await serve({ timeoutMs: 500 });
    const someone = await stranger(server);
    await someone.sayHello(someone.hello({ flight: await firstFlight(ca) }));
    await someone.until(() => someone.heard.some(({ word }) => word === withTerms), "terms");
    const path = pathTo(someone);
    // The head of a record of 16 KiB, and its first bytes.
    const record = [0x17, 3, 3, 0x40, 0];
    for (let at = 0; security(server).openHandshakes > 0; at++) {
      await someone.say(path, frameKind.secure, Uint8Array.of(record[at] ?? 0));
      for (const untilMs = performance.now() + 5; performance.now() < untilMs; ) await someone.turn();
    }
    expect(security(server).refusals).toEqual({ time: 1 });
  });

  it("that name somebody else as the sender send a bounded number of answers there, and hear nothing", async () => {
    const server = await serve({ timeoutMs: 60_000 });
    const flood = await stranger(server);
    const victim = await stranger(server);
    const flight = await firstFlight(ca);
    const { address } = victim.hello();
    for (let i = 0; i < 100; i++) await flood.sayHello(flood.hello({ flight, address }));
    await flood.until(() => (security(server).refusals.crowded ?? 0) === 100 - mostForAddress, "full places");
    await victim.until(() => victim.heard.length >= mostForAddress, "answers");
    expect(victim.heard.map(({ word }) => word)).toEqual(Array(mostForAddress).fill(withTerms));
    expect(flood.heard).toEqual([]);
    // With half of the places taken, what it gets is shorter than the hello, and nobody can go on from there.
    const small = await serve({ maxOpen: 8, timeoutMs: 60_000 });
    const other = await stranger(small);
    const another = await stranger(small);
    const hello = () => other.hello({ flight, address: another.hello().address });
    for (let i = 0; i < 40; i++) await other.sayHello(hello());
    await other.until(() => small.stats().counters.messagesReceived === 40, "hellos");
    const cookies = () => another.heard.filter(({ kind }) => kind === frameKind.retry);
    await another.until(() => cookies().length === 35, "cookies");
    expect(Math.max(...cookies().map(({ body }) => body.byteLength))).toBeLessThan(flight.byteLength);
    expect(security(small).openHandshakes).toBe(5);
    expect(other.heard).toEqual([]);
  });

  it("must show a cookie when half of the places are taken, and an honest client does", async () => {
    const server = await serve({ maxOpen: 8, timeoutMs: 60_000 });
    const flood = await stranger(server);
    const flight = await firstFlight(ca);
    for (let i = 0; i < 20; i++) await flood.sayHello(flood.hello({ flight }));
    await flood.until(
      () => flood.heard.filter(({ kind }) => kind === frameKind.retry).length === 15,
      "cookies",
    );
    expect(security(server).openHandshakes).toBe(5);
    const peer = await honest(server);
    expect(await peer.client(Echo).echo("hi")).toBe("hi");
    // A cookie is its own hello's alone.
    const [cookie] = flood.heard.filter(({ kind }) => kind === frameKind.retry);
    await flood.sayHello(flood.hello({ flight, cookie: cookie?.body }));
    await flood.until(
      () => flood.heard.filter(({ kind }) => kind === frameKind.retry).length === 16,
      "a cookie",
    );
    await flood.sayHello(flood.hello({ flight, cookie: cookie?.body, nonce: cookie?.nonce ?? 0n }));
    await flood.until(() => security(server).openHandshakes === 6, "a sixth place");
  });

  it("are refused for what is no TLS, and sent nothing but that", async () => {
    const server = await serve();
    const someone = await stranger(server);
    await someone.sayHello(someone.hello());
    await someone.until(() => someone.heard.length > 0, "answer");
    await someone.until(() => security(server).refusals.protocol === 1, "refusal");
    expect(security(server).openHandshakes).toBe(0);
    expect(someone.heard.at(-1)).toMatchObject({ kind: frameKind.refuse, word: 16 });
  });

  it("cannot make a handshake longer than any is", async () => {
    const server = await serve();
    const someone = await stranger(server);
    const hello = someone.hello({ flight: await firstFlight(ca) });
    await someone.sayHello(hello);
    await someone.until(() => someone.heard.some(({ word }) => word === withTerms), "terms");
    const path = pathTo(someone);
    // A record of TLS that never ends, a little at a time.
    const piece = Buffer.alloc(8192, 0x16);
    for (let i = 0; i < 12; i++) await someone.say(path, frameKind.secure, piece);
    await someone.until(() => security(server).openHandshakes === 0, "end");
    expect(security(server).refusals).toEqual({ protocol: 1 });
  });

  it("cannot queue work: neither by empty frames, nor by handshakes that they give up", async () => {
    // Nobody has a turn.
    const waiting = new Set<() => void>();
    const spy = vi.spyOn(ShareOfTime.prototype, "do").mockImplementation((_host, step) => {
      waiting.add(step);
      return () => void waiting.delete(step);
    });
    onTestFinished(() => void spy.mockRestore());
    const server = await serve({ timeoutMs: 60_000 });
    const someone = await stranger(server);
    const flight = await firstFlight(ca);
    let repeats: bigint | undefined;
    for (let i = 0; i < 200; i++) {
      const hello = someone.hello({ flight, repeats });
      await someone.sayHello(hello);
      repeats = hello.nonce;
    }
    await someone.until(() => server.stats().counters.messagesReceived === 200, "hellos");
    expect(spy.mock.calls.length).toBeGreaterThan(mostForAddress);
    expect(waiting.size).toBeLessThanOrEqual(1);
    spy.mockRestore();

    const open = await serve();
    const other = await stranger(open);
    await other.sayHello(other.hello({ flight }));
    await other.until(() => other.heard.some(({ word }) => word === withTerms), "terms");
    await other.say(pathTo(other), frameKind.secure, new Uint8Array());
    await other.until(() => security(open).openHandshakes === 0, "end");
    expect(security(open).refusals).toEqual({ protocol: 1 });
  });

  it("that play a hello back get nothing, and disturb nobody", async () => {
    const server = await serve();
    const someone = await stranger(server);
    const hello = someone.hello({ flight: await firstFlight(ca) });
    await someone.sayHello(hello);
    await someone.until(() => security(server).openHandshakes === 1, "handshake");
    await someone.sayHello(hello);
    await someone.until(() => server.stats().counters.strays === 1, "a stray");
    expect(security(server).openHandshakes).toBe(1);
  });

  it("end no handshake and no session by naming a hello that they do not know", async () => {
    const server = await serve();
    const peer = await honest(server);
    const someone = await stranger(server);
    await someone.sayHello(someone.hello({ flight: await firstFlight(ca), repeats: 5n }));
    await someone.until(() => security(server).openHandshakes === 1, "handshake");
    expect(peer.state).toBe("connected");
    expect(await peer.client(Echo).echo("still")).toBe("still");
  });

  it("leave nothing behind when they cut the connection in the middle", async () => {
    const server = await serve({ timeoutMs: 60_000 });
    const someone = await stranger(server);
    await someone.sayHello(someone.hello({ flight: await firstFlight(ca) }));
    await someone.until(() => someone.heard.some(({ word }) => word === withTerms), "terms");
    someone.port.close();
    const other = await stranger(server);
    await other.until(() => security(server).openHandshakes === 0, "end of the handshake");
    expect(server.stats().sessions).toBe(0);
  });
});
