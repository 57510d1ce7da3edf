import { Engine } from "cinnabar";
import { describe, expect, it, onTestFinished } from "vitest";
import type { FrameSpec } from "../../src/session/connection/fake-services.test-support.ts";
import { frameFlag, frameKind } from "../../src/wire/frame.ts";
import { exact } from "../matrix/exact-limits.ts";
import { Attacker, bodyOf } from "./support/attacker.ts";
import { methodNumber, Target, Victim } from "./support/victim.ts";

const id = (generation: number, slot: number): number => ((generation << 20) | slot) >>> 0;

describe("a peer that opens session after session", () => {
  it("gets no more than a peer may have, and others find room", async () => {
    const victim = await Victim.open({
      limits: exact({ maxSessions: 40, maxSessionsByPeer: 8 }),
      heartbeatMs: 100,
    });
    using attacker = await Attacker.at(victim.url);
    for (let i = 0; i < 100; i++) await attacker.send(attacker.hello());
    await attacker.until(() => victim.counters.sessionsRefused === 92, "refusals");
    // Its own and that of the honest peer.
    expect(victim.engine.stats().sessions).toBe(9);
    expect(bodyOf(await attacker.next(frameKind.refuse))).toMatchObject({
      m: "the peer has 8 sessions, maxSessionsByPeer is reached",
    });
    await using late = await Engine.open();
    expect((await late.connect(victim.url)).state).toBe("connected");
    await late.close();
    attacker.port.close();
    await victim.expectUnharmed();
  });

  it("may open others when some have ended", async () => {
    const victim = await Victim.open({ limits: exact({ maxSessionsByPeer: 2 }) });
    using attacker = await Attacker.at(victim.url);
    for (let i = 0; i < 10; i++) {
      await attacker.connect();
      await attacker.sendFrames({ kind: frameKind.goodbye });
      await attacker.until(() => victim.engine.stats().sessions === 1, "end");
    }
    expect(victim.counters.sessionsRefused).toBe(0);
    attacker.port.close();
    await victim.expectUnharmed();
  });
});

describe("peers that do not pull long answers", () => {
  it("hold no more than their shares, lose their sessions, and what they held is free", async () => {
    const answers = 20;
    const bodyBytes = 100_000;
    const maxOfferBytes = 8 * bodyBytes;
    const victim = await Victim.open({
      limits: exact({ maxOfferBytes, maxBodyStallMs: 300 }),
      heartbeatMs: 500,
    });
    await using engine = await Engine.open();
    const honest = (await engine.connect(victim.url)).client(Target);
    using first = await Attacker.at(victim.url);
    using second = await Attacker.at(victim.url);
    for (const attacker of [first, second]) {
      await attacker.connect();
      const long = Array.from({ length: answers }, (_, slot) => ({
        kind: frameKind.request,
        method: methodNumber("long"),
        callId: id(1, slot),
        word: 60_000,
      }));
      await attacker.sendFrames(...long);
      await attacker.until(
        () => attacker.frames.filter(({ callId }) => callId !== 0).length === answers,
        "answers",
      );
      const offered = attacker.frames.filter(({ flags }) => (flags & frameFlag.rendezvous) !== 0).length;
      expect(offered * bodyBytes).toBeLessThanOrEqual(maxOfferBytes / 2);
      expect(offered).toBeGreaterThan(0);
      // Room is left for honest peers.
      expect((await honest.long()).byteLength).toBe(bodyBytes);
    }
    expect(victim.engine.stats().offeredBytes).toBeLessThan(maxOfferBytes);
    // They live, and answer every ping.
    const alive = setInterval(() => {
      for (const attacker of [first, second]) void attacker.sendFrames({ kind: frameKind.pong });
    }, 20);
    try {
      await first.until(() => victim.engine.stats().offeredBytes === 0, "end of what they held");
    } finally {
      clearInterval(alive);
    }
    expect(victim.counters).toMatchObject({ malformed: 0 });
    expect((await honest.long()).byteLength).toBe(bodyBytes);
    await engine.close();
    first.port.close();
    second.port.close();
    await victim.expectUnharmed();
  });
});

describe("peers that live and hold long answers", () => {
  const bodyBytes = 100_000;
  const pong: FrameSpec = { kind: frameKind.pong };

  const offered = ({ frames }: Attacker) =>
    frames.filter(({ flags }) => (flags & frameFlag.rendezvous) !== 0).length;
  const isEnded = ({ frames }: Attacker) => frames.some(({ kind }) => kind === frameKind.goodbye);

  /** Opens a session, says something every 20 ms, and asks for so many answers. */
  async function holding(
    url: string,
    answers: number,
    says: (attacker: Attacker) => FrameSpec = () => pong,
  ): Promise<Attacker> {
    const attacker = await Attacker.at(url);
    await attacker.connect();
    const timer = setInterval(() => void attacker.sendFrames(says(attacker)), 20);
    onTestFinished(() => {
      clearInterval(timer);
      attacker.port.close();
    });
    const method = methodNumber("long");
    // In one message: it takes no turn in which the timer sends another.
    const frames = Array.from({ length: answers }, (_, slot) => ({
      kind: frameKind.request,
      method,
      callId: id(1, slot),
      word: 600_000,
    }));
    await attacker.sendFrames(...frames);
    return attacker;
  }

  it("lose their sessions when they read nothing, however much is kept for them", async () => {
    const victim = await Victim.open({ limits: exact({ maxBodyStallMs: 500 }), heartbeatMs: 100 });
    const answers = 60;
    const attacker = await holding(victim.url, answers);
    // At a second for each 128 KiB these bodies would be kept for 46 s.
    const goodbye = await attacker.next(frameKind.goodbye);
    expect(bodyOf(goodbye)).toMatchObject({ m: expect.stringContaining("too slowly: one has waited for") });
    expect(offered(attacker)).toBe(answers);
    expect(victim.engine.stats().offeredBytes).toBe(0);
    expect(victim.counters).toMatchObject({ malformed: 0, sessionsEvicted: 1 });
    attacker.port.close();
    await victim.expectUnharmed();
  });

  it("keep them while they read enough, and lose them when they read drops", async () => {
    const victim = await Victim.open({ limits: exact({ maxBodyStallMs: 500 }), heartbeatMs: 100 });
    const answers = 200;
    let left = answers * bodyBytes;
    let claimed = 0;
    // In a turn of the loop the victim's clock goes on by 25 ms at most, in which 52 KB are enough.
    const [reading, trickling] = await Promise.all([
      holding(victim.url, answers, (attacker) => {
        const word = Math.min(bodyBytes, offered(attacker) * bodyBytes - claimed);
        if (word === 0) return pong;
        claimed += word;
        left -= word;
        return { kind: frameKind.pulling, word };
      }),
      holding(victim.url, 60, (attacker) =>
        offered(attacker) > 0 ? { kind: frameKind.pulling, word: 1 } : pong,
      ),
    ]);
    const both = (isSo: () => boolean, what: string) =>
      Promise.all([reading.until(isSo, what), trickling.until(isSo, what)]);
    await both(() => isEnded(trickling), "end of the one that reads drops");
    expect([isEnded(reading), left > 0, victim.counters.malformed]).toEqual([false, true, 0]);
    await both(() => left === 0, "last claim");
    expect(isEnded(reading)).toBe(false);
    await reading.until(() => isEnded(reading), "end of the one that has no more to claim");
    expect(victim.engine.stats().offeredBytes).toBe(0);
    expect(victim.counters).toMatchObject({ malformed: 0, sessionsEvicted: 2 });
    reading.port.close();
    trickling.port.close();
    await victim.expectUnharmed();
  });
});

describe("peers that ignore their credits", () => {
  it("hold what they can for as long as they like, and an honest peer is served beside them", async () => {
    const limits = exact({ maxRequests: 64, maxRequestsInAll: 256, maxSessions: 16 });
    const victim = await Victim.open({ limits });
    await using engine = await Engine.open();
    const honest = (await engine.connect(victim.url)).client(Target);
    const attackers = await Promise.all(Array.from({ length: 8 }, () => Attacker.at(victim.url)));
    for (const attacker of attackers) {
      await attacker.connect();
      const wait = Array.from({ length: 64 }, (_, slot) => ({
        kind: frameKind.request,
        method: methodNumber("wait"),
        callId: id(1, slot),
        word: 0xffff_ffff,
        body: 1,
      }));
      await attacker.sendFrames(...wait);
    }
    const [first] = attackers as [Attacker];
    await first.until(() => victim.counters.requestsFailed > 0, "refusals");
    // Beside the 256, eight are reserved for each of sixteen sessions.
    const together = Array.from({ length: 8 }, (_, at) => at);
    for (let round = 0; round < 20; round++) {
      const answers = await Promise.all(together.map((at) => honest.echo({ id: at, text: "t" })));
      expect(answers.map(({ id: at }) => at)).toEqual(together);
    }
    expect(victim.engine.stats().calls.in).toBeLessThanOrEqual(256 + 8 * 16);
    await engine.close();
    for (const attacker of attackers) {
      await attacker.sendFrames({ kind: frameKind.goodbye });
      await attacker.turn();
    }
    await victim.expectUnharmed();
    for (const attacker of attackers) attacker.port.close();
  });
});
