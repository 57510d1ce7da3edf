import { describe, expect, it } from "vitest";
import { timesOf } from "../../scripts/test/ci-times.mjs";
import { allStages } from "../../scripts/test/stages.mjs";
import { turn } from "../../scripts/test/turns.mjs";

const others = allStages.filter(({ within }) => within === "all");
const names = (stages: readonly { name: string }[]) => stages.map(({ name }) => name);
const stage = (name: string, seconds: number) => ({ name, seconds });

describe("the turn of a commit", () => {
  const five = [stage("a", 50), stage("b", 60), stage("c", 10), stage("d", 40), stage("e", 30)];

  it("begins where the hash says, goes round once, and takes what still fits", () => {
    const { chosen, left } = turn(five, "00000003ffffffff", 100);
    expect(names(chosen)).toEqual(["d", "e", "c"]);
    expect(names(left)).toEqual(["a", "b"]);
  });

  it("is the same each time for a commit", () => {
    const hash = "5f3a9c2b00000000";
    expect(turn(five, hash, 100)).toEqual(turn(five, hash, 100));
  });

  it("has the stages of every turn first", () => {
    const stages = [...five, { ...stage("f", 20), everyTurn: true }];
    expect(names(turn(stages, "00000003", 100).chosen)).toEqual(["f", "d", "e", "c"]);
  });

  it("takes everything where everything fits", () => {
    expect(names(turn(five, "00000001", 190).chosen)).toEqual(["b", "c", "d", "e", "a"]);
  });

  it("comes to every stage over the commits, in the time that continuous integration has", () => {
    const seconds = 25 * 60;
    const starts = others.map((_, index) => index.toString(16).padStart(8, "0"));
    const run = new Set(starts.flatMap((hash) => names(turn(others, hash, seconds).chosen)));
    expect([...run].sort()).toEqual(names(others).sort());
  });
});

describe("the times of continuous integration", () => {
  const timesAfter = (minutes: number) => timesOf(() => minutes * 60_000);

  it("leaves 25 minutes to other stages after a quick run of npm test", () => {
    expect(timesAfter(10).otherMinutes()).toBe(25);
  });

  it("ends within 45 minutes, however long the set-up and npm test have taken", () => {
    for (let minutes = 0; minutes <= 44; minutes++) {
      expect(minutes + timesAfter(minutes).testMs() / 60_000).toBeLessThan(45);
      expect(minutes + timesAfter(minutes).otherMs() / 60_000).toBeLessThan(45);
      expect(minutes + timesAfter(minutes).otherMinutes() * 1.25).toBeLessThanOrEqual(44);
    }
    const setup = timesAfter(0).setupMs() / 60_000;
    expect(setup + timesAfter(setup).testMs() / 60_000).toBeLessThan(45);
  });

  it("chooses nothing where no time is left", () => {
    expect(timesAfter(43.9).otherMinutes()).toBe(0);
  });
});
