import { expect, it } from "vitest";
import type { Candidate } from "../authority/authority.ts";
import { type Member, makeView, memberOf } from "../view/view.ts";
import { Ledger } from "./ledger.ts";
import type { Published } from "./membership-service.ts";

const candidate = (engine: string, rank?: number): Candidate => ({
  ...{
    creates: false,
    engine,
    urls: [`mem://${engine}`],
    host: undefined,
    detector: undefined,
    metadata: {},
  },
  ...(rank !== undefined && { rank }),
});

/** A group of so many, founded by rank 0 and joined one by one. */
function groupOf(size: number): { published: Published; ledgers: Ledger[] } {
  const { published: first, self } = Ledger.found("test", candidate("a"));
  const founder = new Ledger(first, self);
  for (let i = 1; i < size; i++) founder.adopt(founder.withCandidate(candidate(`m${i}`)).published);
  const { published } = founder;
  return { published, ledgers: published.view.members.map((member) => new Ledger(published, member)) };
}

const at = (ledger: Ledger, rank: number) => memberOf(ledger.view, rank) as Member;

it("the lowest living rank decides, and the next one when that is gone", () => {
  const { ledgers } = groupOf(3);
  const [first, second, third] = ledgers as [Ledger, Ledger, Ledger];
  expect(ledgers.map(({ decides }) => decides)).toEqual([true, false, false]);
  third.report(at(third, 0), true);
  expect([third.decides, third.coordinator?.rank]).toEqual([false, 1]);
  second.report(at(second, 0), true);
  expect(second.decides).toBe(true);
  second.report(at(second, 0), false);
  expect(second.decides).toBe(false);
  // It knows better about itself.
  first.report(at(first, 0), true);
  expect(first.decides).toBe(true);
});

it("versions increase strictly, and by far at a takeover", () => {
  const { ledgers } = groupOf(3);
  const [first, second] = ledgers as [Ledger, Ledger];
  expect(first.view.version).toBe(3);
  first.report(at(first, 2), true);
  const next = first.withoutTheGone() as Published;
  expect([next.view.version, next.view.members.map(({ rank }) => rank)]).toEqual([4, [0, 1]]);
  expect(first.adopt(next)).toBe(true);
  expect(first.adopt(next)).toBe(false);
  expect(first.withoutTheGone()).toBeUndefined();
  // The former coordinator may go on for a while, and its views are older all the same.
  second.report(at(second, 0), true);
  const takeover = second.withoutTheGone() as Published;
  expect([takeover.view.version, takeover.view.members.map(({ rank }) => rank)]).toEqual([1000, [1, 2]]);
  second.adopt(takeover);
  expect(second.withCandidate(candidate("z")).published.view.version).toBe(1001);
  expect(first.adopt(takeover)).toBe(true);
  expect(first.decides).toBe(false);
});

it("no rank is given to two places, and no incarnation of a rank to two processes", () => {
  const { ledgers } = groupOf(3);
  const [first] = ledgers as [Ledger];
  first.report(at(first, 2), true);
  first.adopt(first.withoutTheGone() as Published);
  const { rank, published } = first.withCandidate(candidate("new"));
  expect(rank).toBe(3);
  first.adopt(published);
  const again = first.withCandidate(candidate("again", 1)).published;
  const [former, latter] = [at(first, 1), memberOf(again.view, 1) as Member];
  expect(latter.incarnation).toBeGreaterThan(former.incarnation);
  first.report(former, true);
  first.adopt(again);
  // A belief about the former process has no effect on this one.
  expect(first.isGone(at(first, 1))).toBe(false);
  first.report(former, true);
  expect(first.isGone(at(first, 1))).toBe(false);
});

it("who leaves decides nothing any more, and a view of another group is none", () => {
  const { ledgers, published } = groupOf(2);
  const [first] = ledgers as [Ledger];
  first.leave();
  expect([first.decides, first.coordinator?.rank]).toEqual([false, 1]);
  expect(first.adopt({ view: makeView("other", 99, published.view.members), nextRank: 9 })).toBe(false);
});
