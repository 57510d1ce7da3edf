import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { RpcError } from "../../base/errors/rpc-error.ts";
import { addonIfThere } from "../../fabric/libfabric/libfabric.ts";
import { localIdentity } from "../../security/identity.ts";
import { KeyChain } from "../../security/sealing/key-schedule.ts";
import { MessageSealer } from "../../security/sealing/message-sealer.ts";
import { lastSequence, sealedTagBytes } from "../../security/sealing/sealed-message.ts";
import { SessionCiphers } from "../../security/sealing/session-ciphers.ts";
import { frameKind, senderState } from "../../wire/frame.ts";
import { messageHeaderBytes, numberOffset } from "../../wire/message.ts";
import { FakePort, takeApart } from "./fake-port.test-support.ts";
import { FakeServices, type FrameSpec, messageOf, peerGreeting } from "./fake-services.test-support.ts";
import type { Session } from "./session.ts";
import { SessionTable } from "./session-table.ts";

let host: FakeServices;
let table: SessionTable;
let port: FakePort;
let session: Session;
let peer: SessionCiphers;

const proof = () => ({
  identity: localIdentity,
  chain: [],
  ciphers: SessionCiphers.from(new Uint8Array(32).fill(7), "connector", "aes-256-gcm"),
});

const request = (address: number) => ({
  port,
  address,
  replyTo: new Uint8Array(16),
  peerName: "the peer",
  answerMs: 1_000,
  totalMs: 1_000,
  served: host.served,
});

/** A session that this side has opened, sealed from its first message on, and the ciphers of its peer. */
beforeEach(() => {
  host = new FakeServices();
  table = new SessionTable(host.terms());
  port = new FakePort(16);
  table.connect(request(4)).catch(() => undefined);
  session = [...table].at(-1) as Session;
  port.sent.length = 0;
  session.seal(proof());
  session.sealOutbox();
  peer = SessionCiphers.from(new Uint8Array(32).fill(7), "acceptor", "aes-256-gcm");
  session.begin(peerGreeting);
});

afterEach(() => {
  for (const one of table) one.end(new RpcError({ code: "unavailable", message: "over" }), { quiet: true });
  for (const { seal } of port.vouches.values()) addonIfThere()?.closeAead(seal?.release() ?? -1);
  peer.close();
  expect(addonIfThere()?.aeads()).toBe(0);
});

/** A message of the peer's, sealed by it. */
function sealed(frames: readonly FrameSpec[], sealer = peer.sealer): Uint8Array {
  const plain = messageOf(session.index, session.nonce.value, frames);
  const slab = new Uint8Array(plain.byteLength + sealedTagBytes);
  slab.set(plain);
  const bytes = sealer.seal(
    { slab, slabView: new DataView(slab.buffer) },
    0,
    frames.length,
    plain.byteLength,
    session.index,
    session.nonce,
  );
  return slab.subarray(0, bytes);
}

function arrive(bytes: Uint8Array): void {
  table.onMessage(port, port.receive(bytes), bytes.byteLength);
}

const ping = (word: number): FrameSpec => ({ kind: frameKind.ping, method: senderState.serving, word });
const counts = () => {
  const { messagesForged, messagesRepeated, keepalivesRefused, malformed, messagesLost } = host.counters;
  return { messagesForged, messagesRepeated, keepalivesRefused, malformed, messagesLost };
};
const none = { messagesForged: 0, messagesRepeated: 0, keepalivesRefused: 0, malformed: 0, messagesLost: 0 };

/** What the session has sent, opened by the peer. */
function opened() {
  return port.sealed.splice(0).map((bytes) => {
    const slab = Uint8Array.from(bytes);
    const view = new DataView(slab.buffer);
    expect(peer.opener.open({ slab, slabView: view }, 0, bytes.byteLength)).toBe(0);
    const plain = slab.subarray(0, bytes.byteLength - sealedTagBytes);
    plain[0] = 0xcb;
    view.setUint32(4, plain.byteLength, true);
    return takeApart(4, plain);
  });
}

describe("a sealed session", () => {
  it("takes what its peer has sealed, and seals its answers", () => {
    arrive(sealed([ping(9)]));
    session.flush();
    expect(opened()).toMatchObject([
      {
        session: peerGreeting.session,
        nonce: peerGreeting.nonce,
        number: 1,
        frames: [{ kind: frameKind.pong, word: 9 }],
      },
    ]);
    expect([port.sent, counts()]).toEqual([[], none]);
  });

  it("drops each message with a changed byte, ends by none of them, and takes the right one then", () => {
    const message = sealed([ping(9)]);
    let dropped = 0;
    for (let at = 0; at < message.byteLength; at++) {
      for (const change of [0x01, 0x80, 0xff]) {
        const changed = Uint8Array.from(message);
        changed[at] = (changed[at] as number) ^ change;
        arrive(changed);
        dropped++;
      }
    }
    session.flush();
    expect([session.state, port.sealed]).toEqual(["open", []]);
    // Those that name another session are strays, or hellos, and no message of this one.
    const { messagesForged, messagesRepeated, keepalivesRefused, strays, malformed } = host.counters;
    expect(messagesForged + messagesRepeated + keepalivesRefused + strays + malformed).toBe(dropped);
    expect(strays + malformed).toBe(3 * 12);
    arrive(message);
    session.flush();
    expect(opened()).toMatchObject([{ frames: [{ kind: frameKind.pong, word: 9 }] }]);
  });

  it("drops messages that were cut off or continued, and those in the clear, a goodbye included", () => {
    const message = sealed([ping(9)]);
    for (let bytes = messageHeaderBytes; bytes < message.byteLength; bytes++)
      arrive(message.subarray(0, bytes));
    arrive(Uint8Array.of(...message, 0, 0, 0, 0, 0, 0, 0, 0));
    for (const kind of [frameKind.ping, frameKind.goodbye, frameKind.refuse, frameKind.welcome])
      arrive(messageOf(session.index, session.nonce.value, [{ kind, body: {} }]));
    expect(session.state).toBe("open");
    expect(counts()).toEqual({ ...none, messagesForged: message.byteLength - messageHeaderBytes + 5 });
  });

  it("drops repeats, and what it has sent itself", () => {
    const message = sealed([ping(9)]);
    arrive(message);
    arrive(message);
    session.flush();
    expect(counts()).toEqual({ ...none, messagesRepeated: 1 });
    const [reflected] = port.sealed as [Uint8Array];
    const view = new DataView(reflected.buffer);
    view.setBigUint64(8, session.nonce.value, true);
    view.setUint32(16, session.index, true);
    arrive(reflected);
    view.setUint32(numberOffset, 2, true);
    arrive(reflected);
    expect([session.state, counts()]).toEqual(["open", { ...none, messagesRepeated: 2, messagesForged: 1 }]);
  });

  it("ends when a message opens before which others are missing", () => {
    sealed([ping(1)]);
    sealed([ping(2)]);
    arrive(sealed([ping(3)]));
    expect([session.state, counts()]).toEqual(["ended", { ...none, messagesLost: 2 }]);
    expect(host.ended[0]?.reason?.message).toContain("2 of its messages were lost");
  });

  it("ends by a genuine message that breaks the protocol", () => {
    arrive(sealed([{ kind: 30 }]));
    expect([session.state, counts()]).toEqual(["ended", { ...none, malformed: 1 }]);
  });

  it("ends after 2^20 forgeries, and not before", () => {
    const forged = sealed([ping(1)]);
    forged[40] = (forged[40] as number) ^ 1;
    const at = port.receive(forged);
    // What does not open is overwritten, and stays as wrong.
    for (let i = 1; i < 2 ** 20; i++) table.onMessage(port, at, forged.byteLength);
    expect(session.state).toBe("open");
    table.onMessage(port, at, forged.byteLength);
    expect(session.state).toBe("ended");
    expect(host.ended[0]?.reason).toMatchObject({ code: "unavailable" });
    expect(host.ended[0]?.reason?.message).toContain(
      "1048576 messages in the name of the peer were not genuine",
    );
  });

  it("says goodbye under its keys, and has none afterwards", () => {
    session.end(new RpcError({ code: "unavailable", message: "enough" }));
    expect(opened()).toMatchObject([{ frames: [{ kind: frameKind.goodbye }] }]);
    // Those of the peer: two for messages, one for pieces that it has not sealed, two for keepalives.
    expect(addonIfThere()?.aeads()).toBe(5);
  });

  it("says goodbye to a peer that was welcomed and has not answered yet", () => {
    table.connect(request(5)).catch(() => undefined);
    const accepted = [...table].at(-1) as Session;
    port.sent.length = 0;
    accepted.addressTo(peerGreeting);
    accepted.seal(proof());
    accepted.sealOutbox();
    accepted.opening.welcome().catch(() => undefined);
    accepted.end(new RpcError({ code: "unavailable", message: "not any more" }));
    expect(opened()).toMatchObject([
      { frames: [{ kind: frameKind.welcome }] },
      { frames: [{ kind: frameKind.goodbye }] },
    ]);
  });

  it("ends when it has sealed as many messages as one can", () => {
    const chain = new KeyChain("aes-256-gcm", new Uint8Array(32), "test");
    const sealer = new MessageSealer(chain, lastSequence - 1);
    session.outbox.seal(sealer);
    session.ping(1);
    session.flush();
    expect(session.state).toBe("open");
    session.ping(2);
    session.flush();
    expect(session.state).toBe("ended");
    expect(host.ended[0]?.reason).toMatchObject({ fabric: { name: "EOVERFLOW" } });
    expect(port.freeSlots).toBe(16 - port.pending);
    sealer.close();
  });

  it("leaves room for the tag in its longest messages", () => {
    const value = "x".repeat(3000);
    for (let i = 0; i < 3; i++)
      session.outbox.value({ kind: frameKind.response, method: 0, callId: i, word: 0 }, value, () => {
        throw new Error("nothing is offered here");
      });
    session.outbox.raw(
      { kind: frameKind.response, method: 0, callId: 4, word: 0 },
      0,
      new Uint8Array(4096 - messageHeaderBytes - 16 - sealedTagBytes),
    );
    session.flush();
    expect(port.sealed.map(({ byteLength }) => byteLength)).toContain(4096);
    expect(opened().flatMap(({ frames }) => frames)).toHaveLength(4);
  });
});

describe("keepalives of a sealed session", () => {
  /** As the guard of the peer's port makes them (native/engine/port_absence.cc). */
  function keepalive(
    count: number,
    frame: FrameSpec = { kind: frameKind.pong, method: senderState.busy },
  ): Uint8Array {
    const plain = messageOf(session.index, session.nonce.value, [frame], 0);
    const message = new Uint8Array(64);
    const view = new DataView(message.buffer);
    message.set(plain.subarray(0, messageHeaderBytes));
    message[0] = 0xcc;
    view.setUint32(4, 64, true);
    view.setBigUint64(24, BigInt(count), true);
    message.set(plain.subarray(messageHeaderBytes), 32);
    peer.guard.sealing.sealMessage(message, 0, 32, 16, count);
    return message;
  }

  it("are heard, and stand outside of the count of messages", () => {
    host.heardMs = 5;
    arrive(keepalive(1));
    expect([session.heardMs, session.remoteState.busy]).toEqual([5, true]);
    arrive(sealed([ping(1)]));
    expect(session.remoteState.busy).toBe(false);
    // Some may be lost.
    arrive(keepalive(7));
    expect([session.remoteState.busy, counts()]).toEqual([true, none]);
  });

  it("are taken once each, and their changed bytes never", () => {
    const first = keepalive(3);
    const second = keepalive(4);
    for (let at = 24; at < 64; at++) {
      const changed = Uint8Array.from(first);
      changed[at] = (changed[at] as number) ^ 1;
      arrive(changed);
    }
    expect(counts()).toEqual({ ...none, keepalivesRefused: 40 });
    arrive(second);
    arrive(first);
    arrive(second);
    arrive(second.subarray(0, 56));
    expect([session.state, counts()]).toEqual(["open", { ...none, keepalivesRefused: 43 }]);
  });

  it("say nothing else than that their sender lives", () => {
    arrive(keepalive(1, { kind: frameKind.ping, method: senderState.busy }));
    expect([session.state, counts()]).toEqual(["ended", { ...none, malformed: 1 }]);
  });

  it("are not taken in the clear, nor under the keys of messages", () => {
    const frame = { kind: frameKind.pong, method: senderState.busy };
    arrive(messageOf(session.index, session.nonce.value, [frame], 0));
    const message = sealed([frame]);
    new DataView(message.buffer).setUint32(numberOffset, 0, true);
    arrive(message);
    expect([session.state, session.remoteState.busy, counts()]).toEqual([
      "open",
      false,
      { ...none, keepalivesRefused: 2 },
    ]);
  });

  it("are made for the port with a cipher of their own", () => {
    const [vouch] = [...port.vouches.values()];
    expect(vouch?.message.byteLength).toBe(64);
    const message = Uint8Array.from(vouch?.message as Uint8Array);
    const view = new DataView(message.buffer);
    view.setBigUint64(24, 1n, true);
    const handle = vouch?.seal?.release() as number;
    expect(addonIfThere()?.sealMessage(handle, message, 0, 32, 16, 1)).toBe(0);
    expect(peer.guard.opener.open({ slab: message, slabView: view }, 0, 64)).toBe(true);
    expect(message.subarray(24, 28)).toEqual(Uint8Array.of(frameKind.pong, 0, senderState.busy, 0));
    addonIfThere()?.closeAead(handle);
  });
});
