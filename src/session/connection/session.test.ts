import { describe, expect, it } from "vitest";
import { RpcError } from "../../base/errors/rpc-error.ts";
import type { IncomingCall } from "../../call/incoming-call.ts";
import { frameFlag, frameKind, rendezvousOwner, senderState } from "../../wire/frame.ts";
import {
  decoded,
  expectFault,
  gone,
  id,
  messageBody,
  open,
  opening,
  rendezvousBody,
  settled,
  setUp,
} from "../calls/scripted-session.test-support.ts";
import { FakeCall, messageOf, packedGreeting, peerGreeting } from "./fake-services.test-support.ts";
import { outputItems } from "./rendezvous.ts";

const mebi = 1024 * 1024;

describe("a session that opens", () => {
  it("says hello and is open once it is welcomed", async () => {
    const all = opening();
    expect(all.kinds()).toEqual([frameKind.hello]);
    expect(all.port.sent[0]).toMatchObject({ session: 0, nonce: 0n, number: 0 });
    all.receive({ kind: frameKind.welcome, body: packedGreeting() });
    expect(await all.opened).toBeUndefined();
    expect([all.session.state, all.session.methods.of("s", "b"), all.host.counters.sessionsOpened]).toEqual([
      "open",
      1,
      1,
    ]);
    all.session.ping();
    all.session.flush();
    expect(all.port.sent.at(-1)).toMatchObject({ session: peerGreeting.session, nonce: peerGreeting.nonce });
  });

  it("says what it serves after the welcome, if anything", async () => {
    const all = opening();
    all.host.served.services = [["mine", ["x"]]];
    all.receive({ kind: frameKind.welcome, body: packedGreeting() });
    expect(decoded(all.port.frames.find(({ kind }) => kind === frameKind.services))).toEqual([
      ["mine", ["x"]],
    ]);
  });

  it("fails with the peer's reason when it is refused", async () => {
    const all = opening();
    all.receive({ kind: frameKind.refuse, word: 8, body: { m: "maxSessions 1 is reached" } });
    const error = (await all.opened) as RpcError;
    expect([error.code, error.origin]).toEqual(["resource_exhausted", "remote"]);
    expect(error.message).toContain("the peer refused the session: maxSessions 1 is reached");
    expect([all.session.state, all.host.counters.malformed, all.port.forgotten]).toEqual(["ended", 0, [4]]);
  });

  it.each([
    ...[frameKind.hello, frameKind.request, frameKind.response, frameKind.error, frameKind.cancel],
    ...[frameKind.ping, frameKind.pong, frameKind.pulled, frameKind.pulling, frameKind.services],
  ])("ends for frame kind %i before the welcome", async (kind) => {
    const all = opening();
    all.receive({ kind, callId: id(1, 0) });
    expectFault(all, `frame kind ${kind} arrived before the welcome`);
    expect((await all.opened)?.message).toContain("broke the protocol");
  });

  it("passes over a keepalive before the welcome, which may overtake it", async () => {
    const all = opening();
    all.receive({ kind: frameKind.pong, method: senderState.busy });
    all.receive({ kind: frameKind.welcome, body: packedGreeting() });
    expect(await all.opened).toBeUndefined();
    expect([all.session.state, all.host.counters.malformed]).toEqual(["open", 0]);
  });

  it.each([
    ["no map", 7, "greeting is not a map"],
    ["an empty body", undefined, "greeting is not a map"],
    ["another version", packedGreeting({ versions: [3, 3] }), "peer speaks protocol 3 to 3"],
    ["bytes that are no value", Uint8Array.of(0xc1), "body cannot be decoded: byte 0xc1 begins no value"],
  ])("ends for a welcome of %s", async (_, body, text) => {
    const all = opening();
    all.receive({ kind: frameKind.welcome, body });
    expectFault(all, text);
    expect(await all.opened).toBeInstanceOf(RpcError);
  });

  it("pulls a long welcome and says so", async () => {
    const all = opening();
    const bytes = messageBody(packedGreeting());
    all.receive({
      kind: frameKind.welcome,
      flags: frameFlag.rendezvous,
      body: rendezvousBody(bytes.byteLength),
    });
    all.port.pulls[0]?.into.set(bytes);
    all.port.pulls[0]?.settle(0);
    expect(await all.opened).toBeUndefined();
    all.session.flush();
    expect(all.port.frames.slice(-2)).toMatchObject([
      { kind: frameKind.pulled, callId: 0, word: rendezvousOwner.response },
      // Any services.
      { kind: frameKind.services, word: 0 },
    ]);
    expect(all.port.regions.size).toBe(0);
  });

  it("fails, blaming nobody, when a long welcome cannot be pulled", async () => {
    const all = opening({ maxPullBytes: 1024 });
    all.host.budgets.pulls.take(1000);
    all.receive({ kind: frameKind.welcome, flags: frameFlag.rendezvous, body: rendezvousBody(5000) });
    const error = (await all.opened) as RpcError;
    expect([error.code, all.host.counters.malformed]).toEqual(["resource_exhausted", 0]);
  });

  it("takes one welcome only, even when the first is still being pulled", async () => {
    const all = opening();
    const bytes = messageBody(packedGreeting());
    all.receive({
      kind: frameKind.welcome,
      flags: frameFlag.rendezvous,
      body: rendezvousBody(bytes.byteLength),
    });
    all.receive({ kind: frameKind.welcome, body: packedGreeting() });
    expect(await all.opened).toBeUndefined();
    const call = new FakeCall();
    all.outgoing.request(call, 0, 10_000, undefined);
    all.port.pulls[0]?.into.set(bytes);
    all.port.pulls[0]?.settle(0);
    await settled();
    expectFault(all, "a second welcome came");
    expect([call.failures.length, all.host.counters.sessionsOpened]).toEqual([1, 1]);
  });
});

describe("an open session", () => {
  it.each([frameKind.hello, frameKind.welcome])("ends for frame kind %i", (kind) => {
    const all = open();
    all.receive({ kind, body: packedGreeting() });
    expectFault(
      all,
      kind === frameKind.hello ? "frame kind 1 arrived inside a session" : "a second welcome came",
    );
  });

  it("tells the peer why it ended, once, and takes nothing that follows in the message", () => {
    const all = open();
    all.receive(
      { kind: frameKind.hello },
      { kind: frameKind.request, callId: id(1, 0), word: 1000 },
      { kind: frameKind.ping },
    );
    expectFault(all, "frame kind 1 arrived inside a session");
    expect(all.kinds()).toEqual([frameKind.goodbye]);
    expect(all.port.frames[0]?.word).toBe(13);
    expect((decoded(all.port.frames[0]) as { m: string }).m).toContain(
      "frame kind 1 arrived inside a session",
    );
    expect(all.method.calls).toHaveLength(0);
  });

  it("ends for bytes behind its last frame and for a frame that is not there", () => {
    for (const [frames, text] of [
      [0, "message does not end with its last frame"],
      [2, "frame header is cut off"],
    ] as const) {
      const all = open();
      const bytes = messageOf(2, 0x2222n, [{ kind: frameKind.pong }]);
      new DataView(bytes.buffer).setUint16(2, frames, true);
      all.session.receive(all.port.receive(bytes), bytes.byteLength);
      expectFault(all, text);
    }
  });

  it("ends for a last frame without its padding", () => {
    const all = open();
    const bytes = messageOf(2, 0x2222n, [
      { kind: frameKind.request, callId: id(1, 0), word: 9, body: Uint8Array.of(0xc0) },
    ]);
    all.session.receive(all.port.receive(bytes), bytes.byteLength - 7);
    expectFault(all, "message does not end with its last frame");
  });

  it("answers a ping with its number", () => {
    const all = open();
    all.receive({ kind: frameKind.ping, word: 0xfeed });
    expect(all.port.frames).toMatchObject([{ kind: frameKind.pong, word: 0xfeed }]);
  });

  it("answers pings that nobody takes the answers of by one, with the last word", () => {
    const all = open();
    all.port.complete();
    const pings = (first: number) =>
      Array.from({ length: 200 }, (_, i) => ({ kind: frameKind.ping, word: first + i }));
    for (let first = 0; first < 20_000; first += 200) all.receive(...pings(first));
    expect(all.session.outbox.queuedBytes).toBe(0);
    // As many as there are slots, and one when there is room again.
    expect(all.port.frames).toHaveLength(8);
    all.port.complete();
    all.session.flush();
    expect(all.port.frames).toHaveLength(9);
    expect(all.port.frames.at(-1)).toMatchObject({ kind: frameKind.pong, word: 19_999 });
  });

  it("is overdue when its bodies do not move, on the time of the heartbeat", async () => {
    const all = open({ maxBodyStallMs: 1000 });
    const flags = frameFlag.rendezvous;
    all.receive({ kind: frameKind.request, callId: id(1, 0), word: 5000, flags, body: rendezvousBody(64) });
    expect([all.session.stalledMs, all.session.hasOpenWork]).toEqual([0, true]);
    all.host.heardMs = 2500;
    expect(all.session.stalledMs).toBe(2500);
    all.port.pulls[0]?.settle(0);
    await settled();
    expect(all.session.stalledMs).toBe(0);
    // However long it is.
    all.session.offers.offer(5, new Uint8Array(4 * mebi), 4 * mebi);
    expect(all.session.stalledMs).toBe(0);
    all.host.heardMs = 3400;
    expect(all.session.stalledMs).toBe(0);
    all.host.heardMs = 3500;
    expect(all.session.stalledMs).toBe(1000);
    all.session.offers.release(5);
    expect(all.session.stalledMs).toBe(0);
  });

  it("keeps items of a stream for as long as the peer speaks of that stream", () => {
    const all = open({ maxBodyStallMs: 1000 });
    const { offers } = all.session;
    const items = outputItems(id(1, 0));
    offers.offerItem(items, new Uint8Array(64), 64, () => {});
    for (let i = 0; i < 200; i++) {
      expect(all.session.stalledMs).toBe(0);
      all.host.heardMs += 900;
      offers.renewItems(items);
      offers.renewItems(outputItems(id(2, 0)));
    }
    expect(all.session.stalledMs).toBe(0);
    all.host.heardMs += 1000;
    expect(all.session.stalledMs).toBe(1000);
    offers.releaseItems(items);
    expect(all.session.stalledMs).toBe(0);
  });

  it("is overdue when the peer reads too little of the bodies that are kept for it, and says so", () => {
    const all = open({ maxBodyStallMs: 1000 });
    all.session.offers.offer(5, new Uint8Array(4 * mebi), 4 * mebi);
    const reads = (bytes: number) => {
      for (let i = 0; i < 4; i++) {
        expect(all.session.stalledMs).toBe(0);
        all.receive({ kind: frameKind.pulling, word: bytes / 4 });
        all.host.heardMs += 250;
      }
    };
    for (let i = 0; i < 3; i++) reads(mebi);
    // Four bytes earn so little that the next look finds it overdue.
    reads(4);
    all.host.heardMs += 250;
    expect(all.session.stalledMs).toBe(4250);
    expect([all.session.state, all.session.offers.kept.size]).toEqual(["open", 1]);
  });

  it("is overdue in the end for a body that the peer leaves, though it reads others", () => {
    const all = open({ maxBodyStallMs: 1000 });
    all.session.offers.offer(5, new Uint8Array(100), mebi);
    for (; all.session.stalledMs === 0; all.host.heardMs += 1000) {
      all.session.offers.offer(6, new Uint8Array(mebi), mebi);
      all.session.offers.release(6);
    }
    expect(all.host.heardMs).toBe(64_000);
  });

  it("ends when a peer says that it has read more than there was, or nothing", () => {
    const claims = [
      [[1], "pulling counts 1 bytes, and 0 were offered"],
      [[600, 401], "pulling counts 1001 bytes, and 1000 were offered"],
      [[0xffff_ffff], "pulling counts 4294967295 bytes, and 1000 were offered"],
      [[0], "pulling counts no bytes"],
    ] as const;
    for (const [words, text] of claims) {
      const all = open();
      if (words[0] !== 1) all.session.offers.offer(5, new Uint8Array(1000), 2000);
      for (const word of words) all.receive({ kind: frameKind.pulling, word });
      expectFault(all, text);
    }
  });

  it("takes what a peer has read of a body that is not kept any more", () => {
    const all = open();
    all.session.offers.offer(5, new Uint8Array(1000), 2000);
    all.session.offers.release(5);
    all.receive({ kind: frameKind.pulling, word: 1000 });
    expect([all.session.state, all.port.frames]).toEqual(["open", []]);
  });

  it("is not overdue for a body that began after the last look, however long ago that was", async () => {
    const all = open({ maxBodyStallMs: 1000 });
    const flags = frameFlag.rendezvous;
    all.receive({ kind: frameKind.request, callId: id(1, 0), word: 5000, flags, body: rendezvousBody(64) });
    all.session.offers.offer(5, new Uint8Array(1000), 2000);
    all.host.heardMs = 15_000;
    expect(all.session.stalledMs).toBe(0);
    all.session.offers.release(5);
    all.host.heardMs = 30_000;
    expect(all.session.stalledMs).toBe(15_000);
  });

  it("watches a peer that does not provide its service table", () => {
    const all = open();
    all.receive({ kind: frameKind.services, flags: frameFlag.rendezvous, body: rendezvousBody(5000) });
    expect([all.session.hasOpenWork, all.host.watched.length]).toEqual([true, 1]);
  });

  it("takes the table of the side that connected, once", () => {
    const all = open();
    all.receive({ kind: frameKind.services, body: [["theirs", ["x", "y"]]] });
    expect(all.session.methods.of("theirs", "y")).toBe(1);
    all.receive({ kind: frameKind.services, body: [] });
    expectFault(all, "an unexpected service table arrived");
  });

  it("takes a longer table whenever the peer serves more", () => {
    const all = open();
    all.receive({ kind: frameKind.services, body: [["theirs", ["x"]]] });
    const more = [
      ["theirs", ["x"]],
      ["new", ["y"]],
    ];
    all.receive({ kind: frameKind.services, word: 2, body: more });
    expect([all.session.methods.of("theirs", "x"), all.session.methods.of("new", "y")]).toEqual([0, 1]);
    // A table that was overtaken has fewer services.
    all.receive({ kind: frameKind.services, word: 3, body: [["theirs", ["x"]]] });
    expect(all.session.methods.of("new", "y")).toBe(1);
    all.receive({ kind: frameKind.services, word: 3, body: more });
    expectFault(all, "an unexpected service table arrived");
  });

  it("takes what the peer tells of its health, and nothing older", async () => {
    const all = opening();
    all.receive({
      kind: frameKind.welcome,
      body: packedGreeting({ health: { edition: 2, notServing: [["a.v1", ""]] } }),
    });
    const told = (edition: number, service: string) => ({ hea: [edition, [[service, "why"]]] });
    all.receive({ kind: frameKind.services, word: 1, body: told(4, "b.v1") });
    // One that had to be pulled may be overtaken by a later one.
    all.receive({ kind: frameKind.services, word: 2, body: told(3, "c.v1") });
    expect(all.session.remote?.health).toEqual({ edition: 4, notServing: [["b.v1", "why"]] });
    all.receive({ kind: frameKind.services, word: 2, body: told(5, "c.v1") });
    expectFault(all, "an unexpected service table arrived");
  });

  it("takes no table from the side that was connected to", async () => {
    const all = opening();
    all.receive({ kind: frameKind.welcome, body: packedGreeting() }, { kind: frameKind.services, body: [] });
    expectFault(all, "an unexpected service table arrived");
  });

  it("ends for a malformed table", () => {
    const all = open();
    all.receive({ kind: frameKind.services, body: { a: 1 } });
    expectFault(all, "greeting has no service table");
  });

  describe("with a transfer of its own under way in the peer's memory", () => {
    const transferring = () => {
      const all = open();
      all.receive({ kind: frameKind.request, callId: id(1, 0), word: 5000, body: 1 });
      const call = all.method.calls[0]?.call as IncomingCall;
      call.beginTransfer();
      call.beginTransfer();
      all.port.sent.length = 0;
      all.session.end(gone);
      return { ...all, call };
    };

    it("says goodbye when it is over", () => {
      const { call, host, port } = transferring();
      call.endTransfer();
      expect(port.frames).toEqual([]);
      expect(host.goodbyes.size).toBe(1);
      call.endTransfer();
      expect(port.frames).toHaveLength(1);
      const said = decoded(port.frames[0]);
      expect(said).toMatchObject({ m: expect.any(String) });
      expect(said).not.toHaveProperty("t");
      expect(host.goodbyes.size).toBe(0);
      host.clock.advance(250);
      expect(port.frames).toHaveLength(1);
    });

    it("says so with its goodbye when it takes too long, and nothing when it is over at last", () => {
      const { call, host, port } = transferring();
      host.clock.advance(250);
      expect(port.frames).toHaveLength(1);
      expect(decoded(port.frames[0])).toMatchObject({ m: expect.any(String), t: true });
      call.endTransfer();
      call.endTransfer();
      expect(port.frames).toHaveLength(1);
      expect(host.goodbyes.size).toBe(0);
    });

    const expectPlainGoodbye = ({ host, port }: ReturnType<typeof open>) => {
      expect(port.frames).toMatchObject([{ kind: frameKind.goodbye }]);
      expect(decoded(port.frames[0])).not.toHaveProperty("t");
      expect(host.goodbyes.size).toBe(0);
    };

    it("says goodbye when the body of a request is not being pulled any more", async () => {
      const all = open();
      const { rendezvous: flags } = frameFlag;
      all.receive({ kind: frameKind.request, callId: id(1, 0), word: 5000, flags, body: rendezvousBody(64) });
      all.session.end(gone);
      expect(all.port.frames).toEqual([]);
      all.port.pulls[0]?.settle(0);
      await settled();
      expectPlainGoodbye(all);
    });

    it("says goodbye at once where a request's body never came to be pulled", () => {
      const all = open();
      const { rendezvous: flags } = frameFlag;
      all.receive({ kind: frameKind.request, callId: id(1, 0), word: 5000, flags, body: new Uint8Array(23) });
      expectFault(all, "rendezvous descriptor has 23 bytes");
      expectPlainGoodbye(all);
    });

    it("says goodbye at once when the end of the session is that of the transfer", () => {
      const all = open();
      all.receive({ kind: frameKind.request, callId: id(1, 0), word: 5000, body: 1 });
      const call = all.method.calls[0]?.call as IncomingCall;
      call.beginTransfer();
      // As one that waits for its turn behind others towards the same peer.
      call.signal.addEventListener("abort", () => call.endTransfer());
      all.session.end(gone);
      expectPlainGoodbye(all);
    });
  });

  it("ends when the peer says goodbye, without a word", () => {
    const all = open();
    const call = new FakeCall();
    all.outgoing.request(call, 0, 10_000, undefined);
    all.port.sent.length = 0;
    all.receive({ kind: frameKind.goodbye, word: 14, body: { m: "closing" } });
    expect([all.session.state, all.host.counters.malformed, all.kinds()]).toEqual(["ended", 0, []]);
    expect(call.failures[0]?.message).toBe("[unavailable] the peer closed the session: closing");
  });

  it("ends once for a goodbye that cannot be decoded", () => {
    const all = open();
    all.receive({ kind: frameKind.goodbye, word: 14, body: Uint8Array.of(0xc1) });
    expectFault(all, "body cannot be decoded");
  });

  it("ends when a peer's limit is too small for what it must be told, and throws nothing", () => {
    const all = setUp();
    all.host.served.services = [["s", Array.from({ length: 1000 }, (_, i) => `method${i}`)]];
    all.session.opening.accept({ ...peerGreeting, bodyBytes: 0 });
    expect([all.session.state, all.host.ended[0]?.reason?.code]).toEqual(["ended", "resource_exhausted"]);
    expect(all.kinds()).toEqual([frameKind.goodbye]);
  });

  it("ends for a peer that is gone, failing its calls at once", () => {
    const all = open();
    const call = new FakeCall();
    all.outgoing.request(call, 0, 10_000, undefined);
    all.session.onPeerGone();
    expect(call.failures[0]?.message).toContain("the process of the peer is gone");
    expect(all.port.forgotten).toEqual([4]);
  });

  it("ends when sending fails", () => {
    const all = open();
    all.session.ping();
    all.session.flush();
    all.port.complete(1, 107);
    expect(all.host.ended[0]?.reason).toMatchObject({
      code: "unavailable",
      fabric: { op: "fi_send", code: 107 },
    });
  });

  it("forgets the peer's address when its last words have left, or after a second", () => {
    const left = open();
    left.session.end(gone);
    expect(left.port.forgotten).toEqual([]);
    left.port.complete();
    expect([left.port.forgotten, left.host.clock.timers]).toEqual([[4], 0]);

    const stuck = open();
    stuck.session.end(gone);
    stuck.host.clock.advance(1000);
    expect(stuck.port.forgotten).toEqual([4]);
    stuck.port.complete();
    expect(stuck.port.forgotten).toEqual([4]);
  });
});
