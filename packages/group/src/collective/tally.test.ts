import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { Reply } from "./envelope.ts";
import { Tally } from "./result.ts";

const failure = { code: "unavailable", message: "gone", retryable: true } as const;
const concat = (one: unknown, other: unknown) => [...(one as number[]), ...(other as number[])];
const ranks = [7, 3, 9, 4, 1, 8];

function reply(ok: number[], failed: number[], repaired: number[] = []): Reply {
  return {
    ...{ refusal: undefined, value: ok, ok, repaired, elapsedMs: 1 },
    failed: failed.map((rank) => ({ ...failure, rank, executed: "maybe" })),
  };
}

/** The outcome of a run of places: unreported, each by itself, or all by the reply of a child. */
const events = fc.array(
  fc.record({
    kind: fc.constantFrom("begin", "undo", "succeed", "fail", "merge", "lie"),
    start: fc.nat(ranks.length - 1),
    count: fc.integer({ min: 1, max: ranks.length }),
    failing: fc.nat(ranks.length),
  }),
  { maxLength: 30 },
);

describe("a tally", () => {
  it("parts its ranks into ok and failed whatever happens, and the value has exactly those that are ok", () => {
    fc.assert(
      fc.property(events, (happened) => {
        const tally = new Tally(ranks, concat);
        for (const { kind, start, count: wanted, failing } of happened) {
          const count = Math.min(wanted, ranks.length - start);
          const run = ranks.slice(start, start + count);
          if (kind === "begin") tally.begin(start, count);
          else if (kind === "undo") tally.undo(start, count);
          else if (kind === "succeed") tally.succeed(start, [ranks[start]]);
          else if (kind === "fail") tally.fail(start, failure);
          else {
            const said = kind === "lie" ? [...run, run[0] as number] : run;
            try {
              tally.merge(start, count, reply(said.slice(failing), said.slice(0, failing)));
            } catch {
              // The ranks are settled, or do not belong to this run: the reply has no effect.
            }
          }
        }
        tally.close(failure);
        const { ok, failed, value } = tally.reply(0);
        const all = [...ok, ...failed.map(({ rank }) => rank)];
        expect(all.sort()).toEqual([...ranks].sort());
        expect([...((value as number[] | undefined) ?? [])].sort()).toEqual([...ok].sort());
        expect(tally.isComplete).toBe(true);
      }),
    );
  });

  it("says of a rank that nothing was sent to that it was not executed", () => {
    const tally = new Tally(ranks, concat);
    tally.begin(1, 2);
    tally.undo(2, 1);
    tally.fail(0, failure);
    tally.close(failure);
    expect(tally.reply(0).failed.map(({ rank, executed }) => [rank, executed])).toEqual([
      [7, "no"],
      [3, "maybe"],
      ...[9, 4, 1, 8].map((rank) => [rank, "no"]),
    ]);
  });

  it('says "maybe" of a rank that an earlier way may have reached, though a later one certainly did not', () => {
    const tally = new Tally(ranks, concat);
    // The first way to 3 and 9, which are below 7, is lost. The second does not find 3.
    tally.begin(0, 3);
    tally.fail(0, failure);
    tally.begin(1, 2);
    tally.undo(1, 2);
    tally.close(failure);
    const { failed } = tally.reply(0);
    expect(failed.slice(0, 3).map(({ executed }) => executed)).toEqual(["maybe", "maybe", "maybe"]);
  });

  it('believes the "no" of a child about those below it only where no earlier way led to them', () => {
    const said = { ...reply([], []), failed: [3, 9].map((rank) => ({ ...failure, rank, executed: "no" })) };
    const heard = (ways: number) => {
      const tally = new Tally(ranks, concat);
      for (let i = 0; i < ways; i++) tally.begin(1, 2);
      tally.merge(1, 2, said as Reply);
      return tally.reply(0).failed.map(({ executed }) => executed);
    };
    // The child knows whether it ran the call itself.
    expect([heard(1), heard(2)]).toEqual([
      ["no", "no"],
      ["no", "maybe"],
    ]);
  });

  it.each([
    ["of a rank of another run", reply([7, 8], [])],
    ["of a rank twice", reply([3, 3, 9], [])],
    ["of a rank that is in both", reply([3, 9], [3])],
    ["not of all", reply([3], [])],
  ])("takes nothing of a reply that tells %s", (_, told) => {
    const tally = new Tally(ranks, concat);
    expect(() => tally.merge(1, 2, told)).toThrow("the reply");
    expect(tally.reply(0)).toMatchObject({ ok: [], failed: [], value: undefined });
    tally.merge(1, 2, reply([3], [9], [3, 8]));
    // A member that the reply does not name cannot have been repaired.
    expect(tally.reply(0)).toMatchObject({ ok: [3], value: [3], repaired: [3] });
  });
});
