import { Engine, implement, type Peer, RpcError, type SecurityOptions, service, unary } from "cinnabar";
import { afterAll, beforeAll, describe, expect, it, onTestFinished, vi } from "vitest";
import { z } from "zod";
import { addonIfThere } from "../../src/fabric/libfabric/libfabric.ts";
import { peerGreeting } from "../../src/session/connection/fake-services.test-support.ts";
import { encode } from "../../src/wire/encode-value.ts";
import { frameHeaderBytes, frameKind, writeHead } from "../../src/wire/frame.ts";
import { packGreeting, type ReturnPath } from "../../src/wire/handshake.ts";
import { acceptorTermsBytes, parseTerms } from "../../src/wire/hello.ts";
import { alignFrame, messageHeaderBytes } from "../../src/wire/message.ts";
import { isLong } from "../matrix/long.ts";
import { Authority } from "./support/authority.ts";
import { secured } from "./support/engines.ts";
import { anyUrl } from "./support/fabric.ts";
import { NetworkPath, nameOf, type OpeningMessageName, type PassingMessage } from "./support/network-path.ts";
import { firstFlight, Stranger } from "./support/stranger.ts";

const Who = service("who.v1", { ask: unary({ output: z.string() }) });
const who = implement(Who, { ask: async (_, call) => (call.identity as { name: string }).name });
const target = { name: "server.example" };
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

/**
 * A message that was changed may have to be waited for, by both sides. Nothing is expected of a connect that takes this
 * long; it is long enough for a second hello.
 */
const givenUpMs = 2500;

async function open(security: SecurityOptions, listen?: string): Promise<Engine> {
  const engine = await Engine.open({
    ...(listen === undefined ? {} : { listen, serve: [who] }),
    security: { handshakes: { maxOpen: 1000, timeoutMs: givenUpMs, share: 1 }, ...security },
    connectTimeoutMs: givenUpMs,
  });
  onTestFinished(() => engine.close());
  return engine;
}

/** Handshakes of one engine at once: below the bound for a return address. */
const atOnce = 10;

async function clients(security: SecurityOptions): Promise<readonly Engine[]> {
  return Promise.all([0, 1, 2].map(() => open(security)));
}

/** A bit of a message to be changed. */
interface Flip {
  readonly name: OpeningMessageName;
  readonly at: number;
  readonly bit: number;
}

/** A message that was changed, and whether a session came of it nevertheless. */
interface Changed {
  readonly flip: Flip;
  readonly message: Uint8Array;
  readonly isOpen: boolean;
}

/** No message of an opening is longer here: Node 22 and later say 1.2 KB more in each first flight. */
const mostBytes = 3000;

/** One bit of each byte of a message; in the short form, of every sixth of its headers and of some of the others. */
function flipsOf(name: OpeningMessageName): Flip[] {
  const places = Array.from({ length: mostBytes }, (_, at) => at);
  const chosen = isLong ? places : places.filter((at) => (at < 96 ? at % 6 === 0 : at % 128 === 0));
  return chosen.map((at) => ({ name, at, bit: at % 8 }));
}

/** The next flip in a message of this name and length. Those beyond its end are passed over. */
function takeFlip(left: Flip[], name: OpeningMessageName, bytes: number): Flip | undefined {
  for (;;) {
    const next = left.findIndex((flip) => flip.name === name);
    const [flip] = next < 0 ? [] : left.splice(next, 1);
    if (flip === undefined || flip.at < bytes) return flip;
  }
}

/** Connects until each flip has been made in an attempt of its own, and tells what became of these attempts. */
async function connectThrough(
  flips: readonly Flip[],
  url: string,
  engines: readonly Engine[],
  onPeer: (peer: Peer) => Promise<void>,
): Promise<readonly Changed[]> {
  const left = [...flips];
  const changed = new Map<PassingMessage["attempt"], Omit<Changed, "isOpen">>();
  using _path = new NetworkPath((passing) => {
    const { attempt, bytes } = passing;
    if (changed.has(attempt)) return [bytes];
    const flip = takeFlip(left, nameOf(passing), bytes.byteLength);
    if (flip === undefined) return [bytes];
    changed.set(attempt, { flip, message: bytes });
    return [bytes.with(flip.at, (bytes[flip.at] as number) ^ (1 << flip.bit))];
  });
  // A test that has failed leaves nobody behind who goes on with a closed engine.
  onTestFinished(() => void left.splice(0));
  const connectOn = async (engine: Engine): Promise<void> => {
    while (left.length > 0) {
      const peer = await engine.connect(url, target).catch((error: unknown) => {
        expect(error).toBeInstanceOf(RpcError);
        return undefined;
      });
      if (peer === undefined) continue;
      await onPeer(peer);
      peer.close();
    }
  };
  await Promise.all(engines.flatMap((engine) => Array.from({ length: atOnce }, () => connectOn(engine))));
  expect(changed.size).toBeGreaterThan(16);
  return [...changed].map(([{ isOpen }, change]) => ({ ...change, isOpen }));
}

/** The message of an acceptor with one more frame: a welcome in its name, for another table and another process. */
function withForgedWelcome(answer: Uint8Array): Uint8Array {
  const start = openingHeaderBytes;
  const terms = parseTerms(answer.slice(start, start + acceptorTermsBytes)) as ReturnPath;
  const greeting = packGreeting({
    ...peerGreeting,
    session: terms.session,
    nonce: terms.nonce,
    incarnation: 666n,
  });
  const body = encode(greeting);
  const message = new Uint8Array(answer.byteLength + frameHeaderBytes + alignFrame(body.byteLength));
  message.set(answer);
  message.set(body, answer.byteLength + frameHeaderBytes);
  const view = new DataView(message.buffer);
  view.setUint16(2, view.getUint16(2, true) + 1, true);
  view.setUint32(4, message.byteLength, true);
  const head = { kind: frameKind.welcome, method: 0, callId: 0, word: 0 };
  writeHead(view, answer.byteLength, head, 0, body.byteLength);
  return message;
}

/** A call shows who is at both sides. */
async function expectHonest(peer: Peer): Promise<void> {
  expect(peer.identity).toMatchObject({ name: "server.example" });
  expect(await peer.client(Who).ask({ timeoutMs: 30_000 })).toBe("client.example");
}

/** What a message of an opening has before the body of its frame. */
const openingHeaderBytes = messageHeaderBytes + frameHeaderBytes;

/** Whether a byte may be another without effect. Both sides hash the hello whole, so it has no such byte. */
function isIdle({ flip: { name, at, bit }, message }: Changed): boolean {
  if (name === "hello" || name === "hello again") return false;
  const bodyBytes = new DataView(message.buffer).getUint32(32, true);
  const end = openingHeaderBytes + bodyBytes;
  // What only calls have in the header of a frame.
  if (at >= 26 && at < 32) return true;
  if (name === "cookie" && at >= 36 && at < 40) return true;
  // Padding, and a length that takes some of it to TLS.
  if (at >= end) return true;
  if (at === 32)
    return alignFrame(bodyBytes ^ (1 << bit)) === alignFrame(bodyBytes) && (bodyBytes & (1 << bit)) === 0;
  // TLS does not look at the minor version of its records in the clear.
  for (let record = openingHeaderBytes + (name === "answer" ? acceptorTermsBytes : 0); record + 5 <= end; ) {
    if (at === record + 2) return true;
    record += 5 + (((message[record + 3] as number) << 8) | (message[record + 4] as number));
  }
  return false;
}

/** Strangers take places of handshakes whenever not more than half are taken. */
async function keepCrowded(url: string, isHalfTaken: () => boolean, signal: AbortSignal): Promise<void> {
  const flight = await firstFlight(ca);
  const strangers = await Promise.all([0, 1, 2, 3].map(() => Stranger.at(url)));
  for (let turn = 0; !signal.aborted; turn++) {
    const stranger = strangers[turn % strangers.length] as Stranger;
    if (!isHalfTaken()) await stranger.sayHello(stranger.hello({ flight }));
    await stranger.turn();
  }
  for (const stranger of strangers) stranger[Symbol.dispose]();
}

/** The flips that led to a session though they change what counts. */
const wrong = (all: readonly Changed[]) =>
  all.filter((change) => change.isOpen && !isIdle(change)).map(({ flip }) => flip);

async function expectNothingLeft(server: Engine, engines: readonly Engine[]): Promise<void> {
  await vi.waitFor(() => {
    expect(server.stats().security.openHandshakes).toBe(0);
    expect(server.stats().sessions).toBe(0);
  }, 30_000);
  for (const engine of engines)
    await expectHonest(await engine.connect(server.urls[0] as string, { ...target, timeoutMs: 30_000 }));
  await Promise.all([server, ...engines].map((engine) => engine.close()));
  expect(addonIfThere()?.aeads()).toBe(0);
}

describe("an opening, one bit of which was changed on the way", () => {
  // Some wait for a changed message for the whole of their time.
  it("leads to no session, or to one of which nothing that counts was changed", async () => {
    const server = await open(secured(ca, "server.example"), anyUrl);
    const engines = await clients(secured(ca, "client.example"));
    const flips = (["hello", "answer", "flight"] as const).flatMap(flipsOf);
    expect(wrong(await connectThrough(flips, server.urls[0] as string, engines, expectHonest))).toEqual([]);
    await expectNothingLeft(server, engines);
  }, 300_000);

  it("leads to no session when the acceptor's proof is followed by a welcome in the clear", async () => {
    const server = await open(secured(ca, "server.example"), anyUrl);
    const [client] = await clients(secured(ca, "client.example"));
    let forged = 0;
    const path = new NetworkPath((passing) => {
      if (nameOf(passing) !== "answer") return [passing.bytes];
      forged++;
      return [withForgedWelcome(passing.bytes)];
    });
    const connecting = (client as Engine).connect(server.urls[0] as string, target);
    await expect(connecting).rejects.toMatchObject({
      message: expect.stringContaining("frames in the clear came behind the proof of the peer"),
    });
    path[Symbol.dispose]();
    expect(forged).toBeGreaterThan(0);
    await expectNothingLeft(server, [client as Engine]);
  }, 60_000);

  it("is no session when a refusal was changed", async () => {
    const server = await open(secured(ca, "server.example"), anyUrl);
    const url = server.urls[0] as string;
    const foreign = other.issue("foreign", { names: "DNS:client.example" });
    const strangers = await clients({ tls: { ...foreign, ca: ca.cert } });
    const onPeer = () => expect.unreachable("a stranger was let in");
    expect(
      (await connectThrough(flipsOf("refusal"), url, strangers, onPeer)).filter(({ isOpen }) => isOpen),
    ).toEqual([]);
    expect(server.stats().security).toMatchObject({ handshakes: 0 });
    await expectNothingLeft(server, await clients(secured(ca, "client.example")));
  }, 300_000);

  it("leads to no session when a cookie was changed, or the hello that shows it", async () => {
    const handshakes = { maxOpen: 96, timeoutMs: 5000, share: 1 };
    const server = await open({ ...secured(ca, "server.example"), handshakes }, anyUrl);
    const url = server.urls[0] as string;
    const isHalfTaken = () => server.stats().security.openHandshakes * 2 > handshakes.maxOpen;
    const over = new AbortController();
    const crowd = keepCrowded(url, isHalfTaken, over.signal);
    await vi.waitUntil(isHalfTaken, 30_000);
    const engines = await clients(secured(ca, "client.example"));
    const flips = (["cookie", "hello again"] as const).flatMap(flipsOf);
    expect(wrong(await connectThrough(flips, url, engines, expectHonest))).toEqual([]);
    over.abort();
    await crowd;
    await expectNothingLeft(server, engines);
  }, 300_000);
});
