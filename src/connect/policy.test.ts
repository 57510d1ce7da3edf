import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { seeded } from "../../test/matrix/random.ts";
import { type Candidate, type PolicyName, policies, slowStartWeight } from "./policy.ts";

interface Server extends Candidate {
  inFlight: number;
  streams: number;
  weight: number;
}

const servers = (count: number): Server[] =>
  Array.from({ length: count }, (_, i) => ({
    name: `tcp://10.0.0.${i}:7400`,
    inFlight: 0,
    streams: 0,
    weight: 1,
  }));

const names = Object.keys(policies) as PolicyName[];
const loads = fc.array(
  fc.record({
    inFlight: fc.nat(50),
    streams: fc.nat(50),
    weight: fc.double({ min: 0.1, max: 1, noNaN: true }),
  }),
  {
    minLength: 1,
    maxLength: 20,
  },
);

describe.each(names)("the policy %s", (name) => {
  it("picks one of those it is given", () => {
    fc.assert(
      fc.property(loads, fc.nat(), fc.option(fc.string(), { nil: undefined }), (given, seed, key) => {
        const all = given.map((load, i) => ({ ...load, name: `s${i}` }));
        const policy = policies[name](seeded(seed));
        for (let i = 0; i < 5; i++) expect(all).toContain(policy.pick(all, key, false));
      }),
    );
  });

  it("spreads calls that all take as long over equal servers", () => {
    const all = servers(8);
    const policy = policies[name](seeded(7));
    const picked = new Map<Server, number>();
    for (let i = 0; i < 8000; i++) {
      const one = policy.pick(all, undefined, false);
      picked.set(one, (picked.get(one) ?? 0) + 1);
    }
    for (const one of all) expect(picked.get(one)).toBeGreaterThan(800);
  });
});

describe("round robin", () => {
  it("gives each a turn before any has two, while members come and go", () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 12 }), fc.integer({ min: 1, max: 5 }), (count, rounds) => {
        const all = servers(count);
        const policy = policies.roundRobin();
        for (let round = 0; round < rounds; round++) {
          const turn = new Set(all.map(() => policy.pick(all, undefined, false)));
          expect(turn.size).toBe(count);
        }
      }),
    );
  });

  it("gives turns by weight, spread evenly", () => {
    const [a, b] = servers(2) as [Server, Server];
    a.weight = 0.25;
    const policy = policies.roundRobin();
    const turns = Array.from({ length: 10 }, () =>
      policy.pick([a, b], undefined, false) === a ? "a" : "b",
    ).join("");
    expect(turns).toBe("bbabbbbabb");
  });

  it("gives streams turns of their own", () => {
    const all = servers(2);
    const policy = policies.roundRobin();
    const picked = Array.from({ length: 8 }, (_, i) => policy.pick(all, undefined, i % 2 === 0));
    const byKind = [0, 1].map((kind) => picked.filter((_, i) => i % 2 === kind));
    for (const kind of byKind)
      for (const one of all) expect(kind.filter((each) => each === one)).toHaveLength(2);
  });
});

describe("least in flight", () => {
  it("picks nobody who has more to do, for its weight, than another", () => {
    fc.assert(
      fc.property(loads, (given) => {
        const all = given.map((load, i) => ({ ...load, name: `s${i}` }));
        const least = Math.min(...all.map(({ inFlight, weight }) => (inFlight + 1) / weight));
        const { inFlight, weight } = policies.leastInFlight().pick(all, undefined, false);
        expect((inFlight + 1) / weight).toBe(least);
      }),
    );
  });
});

describe("two choices", () => {
  it("never picks the busiest of several", () => {
    fc.assert(
      fc.property(fc.integer({ min: 2, max: 20 }), fc.nat(), (count, seed) => {
        const all = servers(count);
        (all[seed % count] as Server).inFlight = 10;
        const policy = policies.twoChoices(seeded(seed));
        for (let i = 0; i < 50; i++) expect(policy.pick(all, undefined, false)).not.toBe(all[seed % count]);
      }),
    );
  });

  // Mitzenmacher: n balls into n bins. The fullest bin has about ln ln n / ln 2 balls with two choices, and ln n / ln
  // ln n with one.
  it("fills bins far more evenly than chance", () => {
    const count = 4096;
    const fullest = (pick: (all: Server[]) => Server) => {
      const all = servers(count);
      for (let i = 0; i < count; i++) pick(all).inFlight++;
      return Math.max(...all.map(({ inFlight }) => inFlight));
    };
    const random = seeded(1);
    const policy = policies.twoChoices(random);
    const two = fullest((all) => policy.pick(all, undefined, false));
    const one = fullest((all) => all[Math.floor(random() * count)] as Server);
    expect(two).toBeLessThanOrEqual(4);
    expect(one).toBeGreaterThan(two);
  });
});

describe.each(["twoChoices", "leastInFlight", "consistentHash"] as const)("streams and %s", (name) => {
  const picks = (all: Server[], isStream: boolean, each: (one: Server) => void = () => {}) => {
    const policy = policies[name](seeded(3));
    const counts = new Map(all.map((one) => [one, 0]));
    for (let i = 0; i < 1000; i++) {
      const one = policy.pick(all, undefined, isStream);
      counts.set(one, (counts.get(one) as number) + 1);
      each(one);
    }
    return [...counts.values()];
  };

  it.each([
    [1, 0],
    [9, 0],
    [9, 2],
  ])("send other calls to both of two servers with %d and %d", (one, other) => {
    const all = servers(2);
    (all[0] as Server).streams = one;
    (all[1] as Server).streams = other;
    for (const count of picks(all, false)) expect(count).toBeGreaterThan(400);
  });

  it("go to the server that has fewer of them and of other calls", () => {
    const all = servers(2);
    (all[0] as Server).streams = 9;
    (all[1] as Server).inFlight = 8;
    expect(picks(all, true)).toEqual([0, 1000]);
  });

  it("are spread evenly", () => {
    const all = servers(4);
    picks(all, true, (one) => one.streams++);
    for (const { streams } of all) expect(Math.abs(streams - 250)).toBeLessThan(10);
  });
});

describe("consistent hashing", () => {
  const keys = Array.from({ length: 2000 }, (_, i) => `user-${i}`);
  const placed = (all: readonly Server[]) =>
    new Map(keys.map((key) => [key, policies.consistentHash().pick(all, key, false).name]));

  it("depends on the key and the names alone, not on their order", () => {
    fc.assert(
      fc.property(fc.shuffledSubarray(servers(10), { minLength: 10 }), fc.string(), (shuffled, key) => {
        expect(policies.consistentHash().pick(shuffled, key, false).name).toBe(
          policies.consistentHash().pick(servers(10), key, false).name,
        );
      }),
    );
  });

  it("moves only the keys of the server that goes, and spreads them over all others", () => {
    fc.assert(
      fc.property(fc.nat(9), (gone) => {
        const all = servers(10);
        const before = placed(all);
        const left = all.filter((_, i) => i !== gone);
        const after = placed(left);
        const heirs = new Set<string>();
        for (const key of keys) {
          const name = before.get(key) as string;
          if (name === all[gone]?.name) heirs.add(after.get(key) as string);
          else expect(after.get(key)).toBe(name);
        }
        expect(heirs.size).toBe(9);
      }),
      { numRuns: 10 },
    );
  });

  it("gives every server about as many keys", () => {
    const counts = new Map<string, number>();
    for (const name of placed(servers(10)).values()) counts.set(name, (counts.get(name) ?? 0) + 1);
    expect(counts.size).toBe(10);
    // 200 each; the deviation of a binomial is 13.
    for (const count of counts.values()) expect(Math.abs(count - 200)).toBeLessThan(70);
  });
});

describe("slow start", () => {
  it("grows from a tenth to the full weight", () => {
    expect([0, 10, 50, 100, 1000].map((now) => slowStartWeight(now, 0, 100))).toEqual([0.1, 0.1, 0.5, 1, 1]);
    expect(slowStartWeight(0, 0, 0)).toBe(1);
  });
});
