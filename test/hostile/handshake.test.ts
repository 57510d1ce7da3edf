import { Engine } from "cinnabar";
import { describe, expect, it } from "vitest";
import { openListeningPort } from "../../src/fabric/open-port.ts";
import { defaultLayout } from "../../src/fabric/port.ts";
import { messageOf, packedGreeting } from "../../src/session/connection/fake-services.test-support.ts";
import { frameFlag, frameHeaderBytes, frameKind } from "../../src/wire/frame.ts";
import { messageHeaderBytes } from "../../src/wire/message.ts";
import { isOverNet } from "../matrix/over-net.ts";
import { Attacker, bodyOf } from "./support/attacker.ts";
import { freshUrl } from "./support/fabric.ts";
import { Victim } from "./support/victim.ts";

const said = async (attacker: Attacker, kind: number): Promise<readonly [number, string]> => {
  const frame = await attacker.next(kind);
  return [frame.word, (bodyOf(frame) as { m: string }).m];
};

describe("a hello", () => {
  it.each([
    [3, 4],
    [0, 0],
  ])("that speaks versions %i to %i is refused by name", async (lowest, highest) => {
    const victim = await Victim.open();
    using attacker = await Attacker.at(victim.url);
    await attacker.send(attacker.hello({ v: [lowest, highest] }));
    const text = `peer speaks protocol ${lowest} to ${highest}, this side 2`;
    expect(await said(attacker, frameKind.refuse)).toEqual([12, text]);
    expect(victim.faults).toEqual([`hello: ${text}`]);
    expect(victim.counters).toMatchObject({ malformed: 1, sessionsRefused: 1 });
    attacker.port.close();
    await victim.expectUnharmed();
  });

  it.each([
    ["inc", "x", "greeting has no incarnation"],
    ["agt", 7, "greeting has no agent"],
    ["bod", -1, "greeting states no body limit"],
    ["req", 0, "greeting states no request limit"],
    ["svc", {}, "greeting has no service table"],
    ["v", null, "greeting states no protocol versions"],
  ])("with a wrong %s is refused by name where it says how to answer", async (key, value, text) => {
    const victim = await Victim.open();
    using attacker = await Attacker.at(victim.url);
    await attacker.send(attacker.hello({ [key]: value }));
    expect(await said(attacker, frameKind.refuse)).toEqual([13, text]);
    attacker.port.close();
    await victim.expectUnharmed();
  });

  it("that cannot be answered is counted and leaves nothing", async () => {
    const victim = await Victim.open();
    using attacker = await Attacker.at(victim.url);
    const hello = (change: Record<string, unknown>) => attacker.hello(change);
    const body = packedGreeting({ address: attacker.address });
    const malformed: Uint8Array[] = [
      hello({ ses: 0 }),
      hello({ non: "x" }),
      hello({ adr: new Uint8Array(300) }),
      hello({ msg: 100 }),
      messageOf(0, 0n, [{ kind: frameKind.hello, body: 7 }]),
      messageOf(0, 0n, [{ kind: frameKind.hello, body: Uint8Array.of(0xc1) }]),
      messageOf(0, 0n, [{ kind: frameKind.hello }]),
      messageOf(0, 0n, []),
      messageOf(0, 0n, [{ kind: frameKind.ping }]),
      messageOf(0, 0n, [{ kind: frameKind.request, callId: 1 << 20, body: 1 }]),
      messageOf(0, 0n, [{ kind: frameKind.hello, flags: frameFlag.rendezvous, body: new Uint8Array(24) }]),
      messageOf(0, 0n, [{ kind: frameKind.hello, body }, { kind: frameKind.ping }]),
    ];
    for (const [index, bytes] of malformed.entries()) {
      await attacker.send(bytes);
      await attacker.until(() => victim.counters.malformed === index + 1, `fault ${index}`);
    }
    // Well formed, but nobody is there.
    await attacker.send(hello({ adr: Buffer.from("nobody-there") }));
    await attacker.until(() => victim.counters.sessionsRefused === 1, "refusal");
    expect(attacker.frames).toEqual([]);
    expect(victim.engine.stats().sessions).toBe(1);
    attacker.port.close();
    await victim.expectUnharmed();
  });

  // Over net a hello can only name the connection by which it comes.
  it.skipIf(isOverNet)(
    "that names the victim's own address is ended when the answer comes back",
    async () => {
      // No session ends by silence within the test.
      const victim = await Victim.open({ heartbeatMs: 60_000 });
      using attacker = await Attacker.at(victim.url);
      const own = Buffer.from(victim.url.slice("mem://".length));
      for (let i = 0; i < 60; i++) await attacker.send(attacker.hello({ adr: own, ses: 1 + i }));
      // Each makes a welcome and the engine's credits, which both come back.
      await attacker.until(() => victim.counters.strays >= 60, "answers");
      await attacker.until(() => victim.engine.stats().sessions === 1, "end of the sessions");
      expect(victim.counters.sessionsOpened).toBe(61);
      attacker.port.close();
      await victim.expectUnharmed();
    },
  );

  it("whose limits are too small for an answer ends its own session only", async () => {
    const victim = await Victim.open();
    using attacker = await Attacker.at(victim.url);
    await attacker.connect({ bod: 0, msg: 4096, req: 1 });
    await attacker.sendFrames({ kind: frameKind.ping, word: 5 });
    expect((await attacker.next(frameKind.pong)).word).toBe(5);
    attacker.port.close();
    await victim.expectUnharmed();
  });
});

describe("a flood of hellos", () => {
  it("is refused beyond maxSessions, and silent peers make room for honest ones", async () => {
    const victim = await Victim.open({ limits: { maxSessions: 10 }, heartbeatMs: 100 });
    using attacker = await Attacker.at(victim.url);
    for (let i = 0; i < 100; i++) await attacker.send(attacker.hello());
    await attacker.until(() => victim.counters.sessionsRefused === 91, "refusals");
    expect(victim.engine.stats().sessions).toBe(10);
    expect(await said(attacker, frameKind.refuse)).toEqual([8, "maxSessions 10 is reached"]);

    await using late = await Engine.open();
    const refused = await late.connect(victim.url).catch((error: unknown) => error);
    // Either it was told that there is no room, or the first silent peers had been lost by then.
    if (!(refused as Error).message?.includes("maxSessions 10 is reached"))
      expect(refused).toHaveProperty("state", "connected");
    await attacker.until(() => victim.engine.stats().sessions < 10, "room");
    const peer = await late.connect(victim.url);
    expect(peer.state).toBe("connected");
    await late.close();
    attacker.port.close();
    await victim.expectUnharmed();
  });
});

const lengthAt = messageHeaderBytes + 8;
const bodyAt = messageHeaderBytes + frameHeaderBytes;

describe("a hostile server", () => {
  /** A port that answers a hello with what the test makes of it, or not. */
  async function connectTo(
    answer: (session: number, nonce: bigint) => Uint8Array | undefined,
  ): Promise<Error> {
    const port = await openListeningPort(freshUrl(), defaultLayout);
    await using engine = await Engine.open();
    const connecting = engine.connect(port.url).then(
      () => expect.fail("connected"),
      (error: Error) => error,
    );
    let done = false;
    connecting.finally(() => {
      done = true;
    });
    while (!done) {
      await new Promise(setImmediate);
      port.progress(0, {
        onMessage(_, offset) {
          const { slabView: view, slab } = port;
          const bytes = Uint8Array.from(
            slab.subarray(offset + bodyAt, offset + bodyAt + view.getUint32(offset + lengthAt, true)),
          );
          const { ses, non, adr } = bodyOf({
            kind: 0,
            flags: 0,
            method: 0,
            callId: 0,
            word: 0,
            body: bytes,
          }) as {
            ses: number;
            non: bigint;
            adr: Uint8Array;
          };
          const reply = answer(ses, non);
          if (reply === undefined) return;
          const slot = port.takeSlot();
          slab.set(reply, slot);
          port.send(port.admit(adr), slot, reply.byteLength, { onSent: () => {} });
        },
        onMessageLost: () => {},
        onPutNotification: () => {},
        onPeerGone: () => {},
      });
    }
    port.close();
    const error = await connecting;
    expect(engine.stats()).toMatchObject({ sessions: 0, calls: { out: 0 }, deadlines: 0 });
    return error;
  }

  it("is asked again when it lets the first hello pass in silence", async () => {
    const nonces: bigint[] = [];
    const error = await connectTo((session, nonce) => {
      nonces.push(nonce);
      if (nonces.length === 1) return undefined;
      return messageOf(session, nonce, [{ kind: frameKind.refuse, word: 14, body: { m: "not now" } }]);
    });
    expect(error.message).toContain("not now");
    // Each attempt is a session of its own, so that a late answer to the first could not be taken for one to the
    // second.
    expect(new Set(nonces).size).toBe(2);
  });

  it.each([
    [
      "another version",
      { kind: frameKind.welcome, body: packedGreeting({ versions: [7, 7] }) },
      "peer speaks protocol 7 to 7",
    ],
    ["no greeting", { kind: frameKind.welcome, body: [] }, "greeting is not a map"],
    [
      "a request",
      { kind: frameKind.request, callId: 1 << 20, body: 1 },
      "frame kind 4 arrived before the welcome",
    ],
    ["an unknown frame", { kind: 200 }, "frame kind 200 is unknown"],
    [
      "a refusal",
      { kind: frameKind.refuse, word: 7, body: { m: "not you" } },
      "refused the session: not you",
    ],
    [
      "a goodbye",
      { kind: frameKind.goodbye, word: 14, body: { m: "closing" } },
      "closed the session: closing",
    ],
  ])("that answers with %s is an error of connect that says so", async (_, frame, text) => {
    const error = await connectTo((session, nonce) => messageOf(session, nonce, [frame]));
    expect(error.message).toContain(text);
  });
});
