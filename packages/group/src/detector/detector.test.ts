import { describe, expect, it } from "vitest";
import { Record } from "../../test/simulate/record.ts";
import { Simulation, type SimulationOptions } from "../../test/simulate/simulation.ts";
import type { DetectorEvent } from "./detector.ts";
import { Detector } from "./detector.ts";
import type { MemberId, Message, Status } from "./message.ts";
import { Roster } from "./opinions.ts";
import { type DetectorOptions, resolveDetectorOptions } from "./options.ts";

const periodMs = 1000;

interface Told {
  readonly observer: MemberId;
  readonly event: DetectorEvent;
}

function simulate(options: Partial<SimulationOptions> = {}) {
  const told: Told[] = [];
  const record = new Record();
  const onEvent = (observer: MemberId, event: DetectorEvent, atMs: number) => {
    told.push({ observer, event });
    record.onEvent(observer, event, atMs);
  };
  const simulation = new Simulation({ members: 8, seed: 1, ...options, onEvent });
  const statuses = (member: MemberId): (Status | undefined)[] =>
    simulation.running.filter((id) => id !== member).map((id) => simulation.detector(id).statusOf(member));
  const all = (member: MemberId, status: Status) => () => statuses(member).every((each) => each === status);
  return { simulation, told, record, statuses, all };
}

describe("a member", () => {
  it("that leaves is known to have left, and nobody suspects it", () => {
    const { simulation, record, all } = simulate();
    simulation.runTo(3 * periodMs);
    simulation.tell(2, (detector, nowMs) => detector.leave(nowMs));
    expect(simulation.runUntil(6 * periodMs, () => simulation.detector(2).isDone)).toBe(true);
    simulation.crash(2);
    expect(simulation.runUntil(8 * periodMs, all(2, "left"))).toBe(true);
    simulation.runTo(60 * periodMs);
    expect(all(2, "left")()).toBe(true);
    expect(record.suspicions).toBe(0);
  });

  it("whose main thread stands still is stalled and not dead, and then alive again", () => {
    const { simulation, record, all } = simulate();
    simulation.tell(4, (detector, nowMs) => detector.setStalled(true, nowMs));
    expect(simulation.runUntil(5 * periodMs, all(4, "stalled"))).toBe(true);
    simulation.runTo(60 * periodMs);
    expect(all(4, "stalled")()).toBe(true);
    simulation.tell(4, (detector, nowMs) => detector.setStalled(false, nowMs));
    expect(simulation.runUntil(65 * periodMs, all(4, "alive"))).toBe(true);
    expect(record.suspicions).toBe(0);
  });

  it("that crashes while it is stalled is dead", () => {
    const { simulation, all } = simulate();
    simulation.tell(4, (detector, nowMs) => detector.setStalled(true, nowMs));
    simulation.runTo(5 * periodMs);
    simulation.crash(4);
    expect(simulation.runUntil(30 * periodMs, all(4, "dead"))).toBe(true);
  });

  it("that slept too long is dead, learns it, and comes back with a later incarnation", () => {
    const { simulation, told, all } = simulate();
    simulation.runTo(3 * periodMs);
    simulation.freeze(1, 40 * periodMs);
    expect(simulation.runUntil(40 * periodMs, all(1, "dead"))).toBe(true);
    expect(simulation.runUntil(53 * periodMs, all(1, "alive"))).toBe(true);
    expect(simulation.detector(1).incarnation).toBeGreaterThan(0);
    const ofSleeper = told.filter(({ observer }) => observer === 1).map(({ event }) => event.type);
    expect(ofSleeper).toContain("slept");
    expect(ofSleeper).toContain("excluded");
    expect(told.filter(({ observer, event }) => observer === 1 && event.type === "status")).toEqual([]);
  });

  it("that may not come back is silent once it knows that it was excluded", () => {
    const { simulation, told, all } = simulate({ detector: { rejoin: false } });
    simulation.runTo(3 * periodMs);
    simulation.freeze(1, 40 * periodMs);
    expect(simulation.runUntil(80 * periodMs, () => simulation.detector(1).isDone)).toBe(true);
    expect(told).toContainEqual({ observer: 1, event: { type: "excluded", incarnation: 0, returns: false } });
    expect(simulation.detector(1).dueMs).toBe(Number.POSITIVE_INFINITY);
    const { sent } = simulation.detector(1).stats;
    simulation.runTo(120 * periodMs);
    expect(all(1, "dead")()).toBe(true);
    expect(simulation.detector(1).stats.sent).toBe(sent);
  });

  it("that hears nobody suspects nobody and says that it is isolated", () => {
    const { simulation, told, record } = simulate();
    simulation.runTo(3 * periodMs);
    simulation.part((id) => Number(id === 5));
    simulation.runTo(60 * periodMs);
    expect(told).toContainEqual({ observer: 5, event: { type: "isolated", isolated: true } });
    // The cut-off member may suspect what it probed, until it notices that it receives no messages.
    const declared = told.filter(({ observer, event }) => observer === 5 && event.type === "status");
    expect(declared.length).toBeLessThanOrEqual(2);
    expect(declared.filter(({ event }) => event.type === "status" && event.status === "dead")).toEqual([]);
    expect(record.believers(5)).toBe(7);
    simulation.heal();
    expect(simulation.runUntil(80 * periodMs, () => record.isWhole)).toBe(true);
    expect(told).toContainEqual({ observer: 5, event: { type: "isolated", isolated: false } });
  });

  it.each([1, 2, 3])("is found dead by the others of a group of %i others", (others) => {
    const { simulation, told, all } = simulate({ members: others + 1 });
    simulation.runTo(3 * periodMs);
    simulation.crash(0);
    const isKnown = simulation.runUntil(60 * periodMs, all(0, "dead"));
    // The survivor of a group of two cannot distinguish a crash from its own outage.
    expect(isKnown).toBe(others > 1);
    expect(told.some(({ event }) => event.type === "isolated")).toBe(others === 1);
  });

  it("of a group of one has nothing to do", () => {
    const { simulation } = simulate({ members: 1 });
    simulation.runTo(20 * periodMs);
    expect(simulation.sent.messages).toBe(0);
  });
});

/** What each part is for: without it a run goes wrong that goes well with it. */
describe("each part earns its place", () => {
  it("shiftOverSleep: who slept does not suspect those that were awake", () => {
    const suspects = (options: DetectorOptions) => {
      const { detector, events } = alone(4, { ...options, outagePeriods: Number.POSITIVE_INFINITY });
      detector.advance(500);
      detector.advance(30_000);
      return events.filter(({ type }) => type === "status").length;
    };
    expect(suspects({})).toBe(0);
    expect(suspects({ shiftOverSleep: false })).toBe(1);
  });

  const failures = (detector: DetectorOptions) => {
    const { simulation, record } = simulate({ members: 24, loss: 0.2, detector });
    simulation.runTo(40 * periodMs);
    const failed = simulation.running.map((id) => simulation.detector(id).stats.failedProbes);
    return { failed: failed.reduce((sum, each) => sum + each, 0), dead: record.everDead(() => true) };
  };

  it("indirectProbes: lost messages make fewer probes fail", () => {
    expect(failures({ indirectProbes: 0 }).failed).toBeGreaterThan(2 * failures({}).failed);
  });

  it("buddy, gossip and suspicion: lost messages kill nobody", () => {
    expect(failures({}).dead).toBe(0);
    const without = {
      buddy: false,
      gossipFanOut: 0,
      lastChance: false,
      suspicionFactor: 1,
      indirectProbes: 0,
    };
    expect(failures(without).dead).toBeGreaterThan(0);
  });

  const knownAfter = (detector: DetectorOptions) => {
    const { simulation, all } = simulate({ members: 32, detector });
    simulation.runTo(3 * periodMs);
    simulation.crash(0);
    simulation.runUntil(200 * periodMs, all(0, "dead"));
    return simulation.nowMs / periodMs;
  };

  it("gossipFanOut: all know sooner", () => {
    expect(knownAfter({ gossipFanOut: 0 })).toBeGreaterThan(knownAfter({}) + 1);
  });

  it("confirmations: a crash that many have seen is a death sooner", () => {
    const alone = knownAfter({ confirmations: 16, suspicionMaxFactor: 30 });
    expect(alone).toBeGreaterThan(knownAfter({}));
  });

  it("outagePeriods: who is cut off does not declare everybody dead", () => {
    const deaths = (detector: DetectorOptions) => {
      const { simulation } = simulate({ detector });
      simulation.runTo(3 * periodMs);
      simulation.part((id) => Number(id === 5));
      simulation.runTo(90 * periodMs);
      return simulation.detector(5).stats.deaths;
    };
    expect(deaths({})).toBe(0);
    expect(deaths({ outagePeriods: Number.POSITIVE_INFINITY })).toBeGreaterThan(3);
  });

  it("pingsToDead: a network that was parted heals", () => {
    const parted = (detector: DetectorOptions) => {
      const { simulation, record } = simulate({ detector });
      simulation.part((id) => Number(id < 4));
      simulation.runTo(100 * periodMs);
      simulation.heal();
      simulation.runTo(130 * periodMs);
      return record.isWhole;
    };
    expect([parted({}), parted({ pingsToDead: 0 })]).toEqual([true, false]);
  });
});

/** One detector; the test writes and reads its messages. */
function alone(members = 4, options: DetectorOptions = {}) {
  const sent: Message[] = [];
  const events: DetectorEvent[] = [];
  const ports = {
    send: (_: string, message: Message) => sent.push(message),
    random: () => 0.5,
    onEvent: (event: DetectorEvent) => events.push(event),
  };
  const ids = Array.from({ length: members }, (_, id) => id);
  const roster = new Roster(ids.map((id) => ({ id, addresses: [`host:${id}`] })));
  const detector = new Detector(0, roster, resolveDetectorOptions(options), ports, 0);
  return { detector, sent, events, roster };
}

const from = (id: MemberId) =>
  ({ from: id, to: 0, incarnation: 0, status: "alive", updates: [] as Message["updates"] }) as const;

describe("what is not to be believed", () => {
  it("is ignored and counted when it comes from no member or is for another", () => {
    const { detector, sent } = alone();
    detector.receive({ ...from(9), kind: "ping", sequence: 1 }, 1);
    detector.receive({ ...from(1), to: 3, kind: "ping", sequence: 1 }, 1);
    detector.receive({ ...from(0), kind: "ping", sequence: 1 }, 1);
    expect([detector.stats.ignored, detector.stats.received, sent]).toEqual([3, 0, []]);
  });

  it("is what the dead say of others, but not what they say of this member", () => {
    const { detector } = alone();
    const updates = [{ member: 1, status: "dead", incarnation: 0 }] as const;
    detector.receive({ ...from(2), kind: "gossip", updates }, 1);
    expect(detector.statusOf(1)).toBe("dead");
    detector.receive(
      {
        ...{ ...from(1), kind: "gossip" },
        updates: [
          { member: 3, status: "dead", incarnation: 0 },
          { member: 0, status: "dead", incarnation: 0 },
        ],
      },
      2,
    );
    expect([detector.statusOf(3), detector.incarnation]).toEqual(["alive", 1]);
  });

  it("is an update about a member that the roster does not have", () => {
    const { detector, sent } = alone();
    const updates = [{ member: 77, status: "dead", incarnation: 5 }] as const;
    detector.receive({ ...from(2), kind: "ping", sequence: 3, updates }, 1);
    expect(detector.statusOf(77)).toBeUndefined();
    expect(sent).toEqual([{ ...from(0), kind: "ack", sequence: 3, to: 2 }]);
  });

  it("is a suspicion of an earlier incarnation", () => {
    const { detector } = alone();
    detector.receive({ ...from(1), kind: "gossip", incarnation: 4 }, 1);
    const updates = [{ member: 1, status: "suspect", incarnation: 3, accuser: 2 }] as const;
    detector.receive({ ...from(2), kind: "gossip", updates }, 2);
    expect(detector.statusOf(1)).toBe("alive");
  });
});

describe("a member that comes back from the dead by itself", () => {
  it.each(["ping", "ack", "gossip"] as const)(
    "is told that it was dead, when its first message is a %s",
    (kind) => {
      const { detector, sent } = alone();
      const dead = { member: 1, status: "dead", incarnation: 0 } as const;
      detector.receive({ ...from(2), kind: "gossip", updates: [dead] }, 1);
      detector.receive({ ...from(1), kind, sequence: 5, incarnation: 1 } as Message, 2);
      expect(detector.statusOf(1)).toBe("alive");
      expect(sent.map(({ to }) => to)).toEqual([1]);
      expect(sent[0]?.updates).toContainEqual(dead);
    },
  );
});

describe("a restarted member", () => {
  it("hears which incarnation it had, and takes a later one", () => {
    const { detector, events } = alone();
    const updates = [{ member: 0, status: "alive", incarnation: 7 }] as const;
    detector.receive({ ...from(1), kind: "gossip", updates }, 1);
    expect(detector.incarnation).toBe(8);
    expect(events).toEqual([{ type: "refuted", incarnation: 8 }]);
  });

  it("takes over the incarnation that a new roster has for it", () => {
    const { detector, roster } = alone();
    const members = roster.members.map((member) => ({ ...member, incarnation: 5 }));
    detector.adopt(new Roster(members), 1);
    expect(detector.incarnation).toBe(5);
    expect(() => detector.adopt(new Roster(members.slice(1)), 2)).toThrow(
      "the group has no member 0, which this detector is for",
    );
  });
});

describe("indirect probes", () => {
  it("are made for others: an answer is passed on, and silence is said too", () => {
    const { detector, sent } = alone();
    detector.receive({ ...from(1), kind: "indirect-ping", sequence: 11, target: 2 }, 1);
    detector.receive({ ...from(1), kind: "indirect-ping", sequence: 12, target: 3 }, 1);
    const pings = sent.splice(0);
    expect(pings.map(({ kind, to }) => [kind, to])).toEqual([
      ["ping", 2],
      ["ping", 3],
    ]);
    const sequence = (pings[0] as Message & { kind: "ping" }).sequence;
    detector.receive({ ...from(2), kind: "ack", sequence }, 2);
    detector.advance(450);
    expect(sent).toEqual([
      { ...from(0), kind: "ack", sequence: 11, to: 1 },
      { ...from(0), kind: "nack", sequence: 12, to: 1 },
    ]);
  });

  it("are bounded: more are refused and counted", () => {
    const { detector, sent } = alone();
    for (let sequence = 0; sequence < 300; sequence += 1)
      detector.receive({ ...from(1), kind: "indirect-ping", sequence, target: 2 }, 1);
    expect([sent.length, detector.stats.refusedRelays]).toEqual([256, 44]);
  });

  it("go to the second address of the target too", () => {
    const addresses: string[] = [];
    const members = [0, 1].map((id) => ({
      id,
      addresses: [`first:${id}`, `second:${id}`] as [string, string],
    }));
    const ports = { send: (to: string) => addresses.push(to), random: () => 0.5, onEvent: () => {} };
    const detector = new Detector(0, new Roster(members), resolveDetectorOptions(), ports, 0);
    detector.advance(500);
    detector.advance(1000);
    expect(addresses).toEqual(["first:1", "second:1"]);
  });
});
