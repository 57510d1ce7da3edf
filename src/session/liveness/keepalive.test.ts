import { describe, expect, it } from "vitest";
import { frameKind, senderState } from "../../wire/frame.ts";
import { Nonce } from "../../wire/message.ts";
import { gone, open, opening } from "../calls/scripted-session.test-support.ts";
import { takeApart } from "../connection/fake-port.test-support.ts";
import { messageOf, peerGreeting } from "../connection/fake-services.test-support.ts";
import { keepalive } from "./keepalive.ts";

describe("a keepalive", () => {
  it("is a pong to the peer's session, known by what the peer's messages carry", () => {
    const { mark, message } = keepalive({ nonce: new Nonce(0x2222n) }, peerGreeting, 1);
    expect(takeApart(4, message)).toMatchObject({
      session: peerGreeting.session,
      nonce: peerGreeting.nonce,
      number: 0,
      frames: [{ kind: frameKind.pong, method: senderState.busy, callId: 0, word: 0 }],
    });
    expect(mark).toEqual(messageOf(2, 0x2222n, []).subarray(8, 16));
  });

  it.each([
    [1000, 125],
    [100, 12],
    [1, 10],
    [0xffff_ffff, 536_870_911],
  ])("comes several times within a peer's heartbeat of %i ms: every %i ms", (heartbeatMs, everyMs) => {
    const ours = { nonce: new Nonce(1n) };
    expect(keepalive(ours, { ...peerGreeting, heartbeatMs }, 7)).toMatchObject({ everyMs, forMs: 7 });
  });
});

describe("a session", () => {
  it("is vouched for while it is open, and no longer", () => {
    const { session, port, host } = open();
    const vouch = keepalive(session, peerGreeting, host.liveness.maxStallMs);
    expect([...port.vouches]).toEqual([[session.address, vouch]]);
    session.end(gone);
    expect(port.vouches.size).toBe(0);
  });

  it("is not vouched for before its welcome", () => {
    expect(opening().port.vouches.size).toBe(0);
  });

  it("is heard by a keepalive, but not answered, and does not take it for the end of draining", () => {
    const ponged: number[] = [];
    const { session, receive, host } = open();
    host.ponged = () => void ponged.push(1);
    receive({ kind: frameKind.ping, method: senderState.draining });
    host.heardMs = 5;
    receive({ kind: frameKind.pong, method: senderState.busy });
    expect([session.heardMs, session.remoteState, ponged]).toMatchObject([
      5,
      { drains: true, busy: true },
      [],
    ]);
    receive({ kind: frameKind.pong, method: senderState.serving });
    expect([session.remoteState, ponged]).toMatchObject([{ drains: false, busy: false }, [1]]);
  });

  it("takes any other message for the end of the stall", () => {
    const { session, receive } = open();
    receive({ kind: frameKind.pong, method: senderState.busy });
    receive({ kind: frameKind.services, body: [] });
    expect(session.remoteState.busy).toBe(false);
  });
});
