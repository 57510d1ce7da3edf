import { describe, expect, it } from "vitest";
import { type Member, makeView } from "./view.ts";

const member = (rank: number, incarnation = 1, urls = ["tcp://127.0.0.1:1"]): Member => ({
  ...{ rank, incarnation, urls, engine: undefined, host: undefined, detector: undefined, metadata: {} },
});

it("a view has its members by rank, and nobody can change it", () => {
  const view = makeView("test", 1, [member(2), member(0)]);
  expect(view.members.map(({ rank }) => rank)).toEqual([0, 2]);
  expect(() => (view.members as Member[]).push(member(1))).toThrow(TypeError);
  expect(() => ((view.members[0] as { rank: number }).rank = 5)).toThrow(TypeError);
});

describe("what is no view:", () => {
  it.each([
    ["a version of 0", 0, [], "the version of a view"],
    ["a version with a fraction", 1.5, [], "the version of a view"],
    ["a negative rank", 1, [member(-1)], "a rank is a whole number"],
    ["an incarnation that is no number", 1, [member(0, Number.NaN)], "rank 0 has the incarnation NaN"],
    ["two members with one rank", 1, [member(1), member(1, 2)], "two members have the rank 1"],
    ["a member without a URL", 1, [member(3, 1, [])], "rank 3 has no URL"],
  ])("%s", (_, version, members, message) => {
    expect(() => makeView("test", version, members)).toThrow(message);
  });
});
