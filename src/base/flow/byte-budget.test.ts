import { describe, expect, it } from "vitest";
import { ByteBudget } from "./byte-budget.ts";
import { usualLimits } from "./engine-limits.test-support.ts";
import { PeerAccounts, SharedBudgets } from "./peer-account.ts";

describe("a budget that peers share", () => {
  it("gives one peer no more than it leaves for the others", () => {
    const budget = new ByteBudget(1000);
    const one = budget.share();
    const other = budget.share();
    let taken = 0;
    while (one.take(10)) taken += 10;
    expect(taken).toBe(500);
    while (other.take(10));
    expect(other.bytes).toBe(250);
    // There is always room for one more peer.
    expect(budget.share().take(100)).toBe(true);
    one.give(500);
    expect([one.bytes, budget.bytes, other.take(100)]).toEqual([0, 350, true]);
  });

  it("lets a body pass that is longer than all of it, when nothing else is held", () => {
    const budget = new ByteBudget(1000);
    const one = budget.share();
    expect([one.take(5000), one.take(1), budget.share().take(1)]).toEqual([true, false, false]);
    one.give(5000);
    expect(budget.bytes).toBe(0);
  });
});

describe("the room of a share", () => {
  it("is half of what is left beyond what it holds, and never below the least", () => {
    const budget = new ByteBudget(1000);
    const [one, other, late] = [budget.share(), budget.share(), budget.share()];
    expect(one.room(50)).toBe(500);
    one.hold(500);
    expect([one.room(50), other.room(50)]).toEqual([0, 250]);
    other.hold(250);
    expect(late.room(50)).toBe(125);
    late.hold(125);
    expect(budget.share().room(50)).toBe(62);
    for (let peers = 0; peers < 20; peers++) budget.share().hold(62);
    const guaranteed = budget.share();
    expect(guaranteed.room(50)).toBe(50);
    guaranteed.hold(30);
    expect(guaranteed.room(50)).toBe(20);
    one.give(500);
    expect(budget.bytes).toBe(250 + 125 + 20 * 62 + 30);
  });
});

describe("the accounts of peers", () => {
  const budgets = new SharedBudgets(usualLimits);

  it("are one for each endpoint, and forgotten when nothing is held there", () => {
    const accounts = new PeerAccounts(budgets);
    const at = (n: number) => accounts.at("tcp://a", Uint8Array.of(n >> 8, n));
    const first = at(0);
    first.sessions = 1;
    expect(at(0)).toBe(first);
    expect(accounts.at("tcp://b", Uint8Array.of(0, 0))).not.toBe(first);
    const holding = at(1);
    holding.offers.take(5);
    for (let n = 2; n < 10_000; n++) at(n);
    expect(accounts.size).toBeLessThan(100);
    expect([at(0), at(1)]).toEqual([first, holding]);
    expect(at(0)).toBe(first);
    expect(at(1)).toBe(holding);
  });
});
