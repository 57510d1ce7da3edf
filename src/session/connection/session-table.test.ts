import { beforeEach, describe, expect, it } from "vitest";
import { RpcError } from "../../base/errors/rpc-error.ts";
import type { EngineLimits } from "../../base/flow/engine-limits.ts";
import { decodeAt } from "../../wire/decode-value.ts";
import { frameKind } from "../../wire/frame.ts";
import type { Greeting } from "../../wire/handshake.ts";
import type { Teardown } from "../liveness/teardown.ts";
import { FakePort } from "./fake-port.test-support.ts";
import {
  FakeMethod,
  FakeServices,
  messageOf,
  packedGreeting,
  peerGreeting,
} from "./fake-services.test-support.ts";
import type { Session } from "./session.ts";
import type { SessionPart } from "./session-part.ts";
import { SessionTable } from "./session-table.ts";

let host: FakeServices;
let table: SessionTable;
let port: FakePort;

function setUp(limits: Partial<EngineLimits> = {}): void {
  host = new FakeServices(limits);
  table = new SessionTable(host.terms());
  port = new FakePort(16);
}

beforeEach(() => setUp());

/** A session that this side has opened. */
function open(address: number): Session {
  table
    .connect({
      port,
      address,
      replyTo: new Uint8Array(16),
      peerName: `peer ${address}`,
      answerMs: 1_000,
      totalMs: 1_000,
      served: host.served,
    })
    .catch(() => undefined);
  const session = [...table].at(-1) as Session;
  session.begin(peerGreeting);
  return session;
}

/** A peer with its own endpoint says hello. Returns the session that it gets. */
function hello(change: Partial<Greeting>): Session | undefined {
  const before = new Set(table);
  const address = Buffer.from(`at.${change.incarnation ?? 0}`);
  const bytes = messageOf(0, 0n, [
    { kind: frameKind.hello, body: packedGreeting({ address, services: [], ...change }) },
  ]);
  table.onMessage(port, port.receive(bytes), bytes.byteLength);
  return [...table].find((session) => !before.has(session));
}

const kinds = () => port.frames.map(({ kind }) => kind);

describe("the sessions of an engine", () => {
  it("count a message for no session as a stray, sealed or not: theirs may have ended while it came", () => {
    for (const magic of [0xcb, 0xcc]) {
      const bytes = messageOf(7, 9n, [{ kind: frameKind.ping }]);
      bytes[0] = magic;
      table.onMessage(port, port.receive(bytes), bytes.byteLength);
    }
    expect([host.counters.strays, host.counters.malformed]).toEqual([2, 0]);
  });

  it("are asked whether they live when they are told other credits and have nothing open", () => {
    setUp({ maxRequests: 64, maxRequestsInAll: 64 });
    host.served.methods = [new FakeMethod()];
    const first = open(1);
    expect(host.probed).toEqual([]);
    open(2);
    // Otherwise the earlier death of the peer would not be noticed: its credits would wait in a send slot forever.
    expect(host.probed).toEqual([first]);
  });

  it("are refused in silence when too many refusals are on their way", () => {
    setUp();
    table.stopAccepting();
    hello({ incarnation: 1n });
    expect([kinds(), host.counters.sessionsRefused]).toEqual([[frameKind.refuse], 1]);
    // Each refusal connects to the address in the hello.
    const gauges = port.gauges();
    port.gauges = () => ({ ...gauges, addresses: 64 });
    hello({ incarnation: 2n });
    expect([kinds(), host.counters.sessionsRefused, table.size]).toEqual([[frameKind.refuse], 2, 0]);
  });

  it("end when their connector repeats the hello that made them", () => {
    const first = hello({ nonce: 7n });
    // Another engine, which has seen the hello on its way.
    const other = hello({ nonce: 6n, repeats: 7n, incarnation: 6n });
    expect([first?.state, other?.state]).toEqual(["open", "open"]);
    const second = hello({ nonce: 8n, repeats: 7n });
    expect([first?.state, second?.state, other?.state, table.size]).toEqual(["ended", "open", "open", 2]);
    // The connector never knew the first session, so no goodbye is sent.
    expect(kinds()).not.toContain(frameKind.goodbye);
    // A hello for a session that is gone.
    hello({ nonce: 9n, repeats: 7n });
    expect([second?.state, table.size]).toEqual(["open", 3]);
  });

  it("are not made by a hello that came before, whichever peer repeats it", () => {
    const first = hello({ nonce: 7n });
    expect([hello({ nonce: 7n }), hello({ nonce: 7n, incarnation: 6n })]).toEqual([undefined, undefined]);
    expect([first?.state, table.size, host.counters.strays]).toEqual(["open", 1, 2]);
  });

  it("end when their welcome comes back: the hello named an address of this engine", () => {
    const [one, two] = [hello({ nonce: 7n, session: 3 }), hello({ nonce: 8n, session: 3 })];
    const comesBack = (session: number, nonce: bigint) => {
      const bytes = messageOf(session, nonce, [{ kind: frameKind.welcome, body: packedGreeting() }]);
      table.onMessage(port, port.receive(bytes), bytes.byteLength);
    };
    comesBack(4, 7n);
    comesBack(3, 9n);
    expect([one?.state, two?.state]).toEqual(["open", "open"]);
    comesBack(3, 7n);
    expect([one?.state, two?.state, table.size]).toEqual(["ended", "open", 1]);
    expect(host.ended[0]?.reason?.message).toContain("the hello named an address of this engine itself");
    expect(kinds()).not.toContain(frameKind.goodbye);
  });

  it("end with their connection when nothing is open, and tell the side that had connected", () => {
    const accepted = hello({ nonce: 7n }) as Session;
    const opened = open(9);
    port.sent.length = 0;
    table.onDisconnected(port, opened.address);
    expect([opened.state, kinds()]).toEqual(["ended", []]);
    table.onDisconnected(port, accepted.address);
    expect([accepted.state, kinds()]).toEqual(["ended", [frameKind.goodbye]]);
    // Disconnected again: no session is left to notify.
    table.onDisconnected(port, accepted.address);
    table.onDisconnected(port, 77);
  });

  it("are asked for a sign of life a little after their connection has ended while something is open", () => {
    const session = hello({ nonce: 7n }) as Session;
    session.transferRefused = true;
    table.onDisconnected(port, session.address);
    // The peer may have a question itself, and two connections at once would lose a message of one of them.
    host.clock.advance(20);
    expect([session.state, host.probed]).toEqual(["open", []]);
    host.clock.advance(10);
    expect([session.state, host.probed]).toEqual(["open", [session]]);
  });

  it("are asked nothing if they end meanwhile", () => {
    const session = hello({ nonce: 7n }) as Session;
    session.transferRefused = true;
    table.onDisconnected(port, session.address);
    session.end(new RpcError({ code: "unavailable", message: "gone" }));
    host.clock.advance(1000);
    expect(host.probed).toEqual([]);
  });

  it("that are being opened fail as for a message that was lost", async () => {
    const connected = table.connect({
      port,
      address: 3,
      served: host.served,
      replyTo: new Uint8Array(16),
      peerName: "the peer",
      answerMs: 1_000,
      totalMs: 1_000,
    });
    table.onDisconnected(port, 3);
    await expect(connected).rejects.toMatchObject({ fabric: { op: "fi_send", code: 125 } });
  });

  it("have strangers beside them, who count as none and take no event of another's address", () => {
    const handshakes = { maxOpen: 4, timeoutMs: 5000, share: 1 };
    host.security = { allowPlain: true, suites: ["aes-256-gcm"], handshakes } as never;
    Object.assign(host, { tls: { connectFault: "" } });
    table = new SessionTable(host.terms());
    port.scheme = "tcp";
    const session = hello({ nonce: 7n }) as Session;
    // Over this port all peers have one address.
    const secure = { ...packedGreeting({ nonce: 8n }), aut: { s: [1], t: Uint8Array.of(1) } };
    const bytes = messageOf(0, 0n, [{ kind: frameKind.hello, body: secure }]);
    table.onMessage(port, port.receive(bytes), bytes.byteLength);
    expect([host.securityMeter.openHandshakes, table.size, [...table]]).toEqual([1, 1, [session]]);
    table.onDisconnected(port, session.address);
    expect([session.state, host.securityMeter.openHandshakes, table.size]).toEqual(["ended", 0, 0]);
    // The engine has received no event of the stranger.
    expect(host.ended.map((one) => one.session)).toEqual([session]);
    table.close(new RpcError({ code: "unavailable", message: "closed" }));
  });

  it("are watched from their welcome on", () => {
    const session = hello({ nonce: 7n });
    expect(host.watched).toContain(session);
  });

  describe("with a peer that says hello once more", () => {
    const silent = new RpcError({ code: "unavailable", message: "silent" });

    it("are asked whether they live, once in a bound of the heartbeat", () => {
      const first = hello({ nonce: 7n });
      expect(host.probed).toEqual([]);
      hello({ nonce: 8n });
      hello({ nonce: 9n });
      expect(host.probed).toEqual([first]);
      host.clock.advance(1_000);
      hello({ nonce: 10n });
      expect(host.probed).toHaveLength(4);
    });

    it("make room where they are too many and one does not answer", () => {
      setUp({ maxSessionsByPeer: 1 });
      host.awaits = true;
      const first = hello({ nonce: 7n }) as Session;
      expect(hello({ nonce: 8n })).toBeUndefined();
      host.clock.advance(500);
      expect(kinds()).not.toContain(frameKind.refuse);
      first.end(silent);
      host.clock.advance(500);
      expect([...table].map(({ remote }) => remote?.nonce)).toEqual([8n]);
      expect(kinds()).not.toContain(frameKind.refuse);
    });

    it("make none where they are too many and all answer", () => {
      setUp({ maxSessionsByPeer: 1 });
      host.awaits = true;
      const first = hello({ nonce: 7n });
      hello({ nonce: 8n });
      host.awaits = false;
      host.clock.advance(500);
      expect(kinds()).toContain(frameKind.refuse);
      expect([...table]).toEqual([first]);
    });
  });

  it("let a peer know once that speaks in one which has ended", () => {
    const session = hello({ nonce: 7n }) as Session;
    session.end(new RpcError({ code: "unavailable", message: "silent" }));
    const say = (kind: number) => {
      const bytes = messageOf(session.index, session.nonce.value, [{ kind }]);
      table.onMessage(port, port.receive(bytes), bytes.byteLength);
    };
    const goodbyes = () => kinds().filter((kind) => kind === frameKind.goodbye).length;
    const [first] = port.sent.filter(({ frames }) => frames[0]?.kind === frameKind.goodbye);
    say(frameKind.goodbye);
    expect(goodbyes()).toBe(1);
    say(frameKind.ping);
    expect(goodbyes()).toBe(2);
    expect(port.sent.at(-1)).toMatchObject({ nonce: 7n, number: (first?.number ?? 0) + 1 });
    say(frameKind.ping);
    expect([goodbyes(), host.counters.strays]).toEqual([2, 3]);
  });

  it("say nothing to such a peer while they wait for transfers in its memory", () => {
    setUp();
    let ending: Teardown | undefined;
    const moves: SessionPart = {
      frames: {},
      openWork: 1,
      end(_reason, teardown) {
        teardown.addTransfers(1);
        ending = teardown;
      },
    };
    table = new SessionTable(host.terms([() => moves]));
    const session = hello({ nonce: 7n }) as Session;
    session.end(new RpcError({ code: "unavailable", message: "silent" }));
    const ping = () => {
      const bytes = messageOf(session.index, session.nonce.value, [{ kind: frameKind.ping }]);
      table.onMessage(port, port.receive(bytes), bytes.byteLength);
    };
    const goodbyes = () => port.frames.filter(({ kind }) => kind === frameKind.goodbye);
    // A goodbye would give the peer its memory back.
    ping();
    expect(goodbyes()).toEqual([]);
    // The goodbye does not wait forever: it reports that a transfer may still touch the memory, and so does each later
    // one.
    host.clock.advance(250);
    ping();
    expect(goodbyes().map(({ body }) => decodeAt(body, 0, body.byteLength))).toMatchObject([
      { t: true },
      { t: true },
    ]);
    ending?.onTransferEnded();
    expect(goodbyes()).toHaveLength(2);
  });

  describe("when there is no room for another", () => {
    beforeEach(() => setUp({ maxSessions: 2, maxSessionsByPeer: 2 }));

    it("are asked whether they live, and the hello waits for one that does not", () => {
      const first = hello({ nonce: 7n }) as Session;
      hello({ nonce: 8n });
      host.probed.splice(0);
      expect(hello({ nonce: 9n, incarnation: 9n })).toBeUndefined();
      expect(host.probed).toHaveLength(2);
      expect(kinds()).not.toContain(frameKind.refuse);
      host.clock.advance(1_000);
      first.onPeerGone();
      expect([...table].map(({ remote }) => remote?.nonce)).toContain(9n);
      expect(table.size).toBe(2);
      host.clock.advance(10_000);
      expect(kinds()).not.toContain(frameKind.refuse);
    });

    it("stay if they live, and the hello is refused after the time that a dead peer has", () => {
      hello({ nonce: 7n });
      hello({ nonce: 8n });
      hello({ nonce: 9n });
      host.clock.advance(1_499);
      expect(kinds()).not.toContain(frameKind.refuse);
      host.clock.advance(1);
      expect(kinds()).toContain(frameKind.refuse);
      expect([table.size, host.counters.sessionsRefused]).toEqual([2, 1]);
    });

    it("are not taken by a hello that was repeated while it waited", () => {
      const first = hello({ nonce: 7n }) as Session;
      hello({ nonce: 8n });
      hello({ nonce: 9n, incarnation: 9n });
      hello({ nonce: 10n, incarnation: 9n, repeats: 9n });
      first.onPeerGone();
      expect([...table].map(({ remote }) => remote?.nonce)).toEqual([10n, 8n]);
    });

    it("let no more hellos wait than is bounded", () => {
      hello({ nonce: 7n });
      hello({ nonce: 8n });
      for (let nonce = 100n; nonce < 356n; nonce++) hello({ nonce });
      expect(host.counters.sessionsRefused).toBe(0);
      hello({ nonce: 400n });
      expect(host.counters.sessionsRefused).toBe(1);
    });
  });
});
