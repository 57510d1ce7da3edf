import { setImmediate as turnOfLoop } from "node:timers/promises";
import { describe, expect, it } from "vitest";
import { WorkTurns } from "./work-turns.ts";

/** Keeps the thread for longer than a peer's share of a turn. */
function compute(): void {
  const endMs = performance.now() + 6;
  while (performance.now() < endMs);
}

describe("the work of one peer", () => {
  it("runs at once, as long as it is short", () => {
    const turns = new WorkTurns();
    const done: number[] = [];
    for (let i = 0; i < 10; i++) turns.run(() => done.push(i));
    expect(done).toHaveLength(10);
  });

  it("gives the loop a turn between long pieces, and keeps their order", async () => {
    const turns = new WorkTurns();
    const done: string[] = [];
    for (const name of ["first", "second", "third"])
      turns.run(() => {
        compute();
        done.push(name);
      });
    expect(done).toEqual(["first"]);
    await turnOfLoop();
    expect(done).toEqual(["first", "second"]);
    turns.run(() => done.push("last"));
    await turnOfLoop();
    expect(done).toEqual(["first", "second", "third"]);
    await turnOfLoop();
    expect(done).toEqual(["first", "second", "third", "last"]);
  });

  it("goes on after a piece that throws", async () => {
    const turns = new WorkTurns();
    const done: string[] = [];
    expect(() =>
      turns.run(() => {
        compute();
        throw new Error("a piece");
      }),
    ).toThrow("a piece");
    turns.run(() => done.push("next"));
    await turnOfLoop();
    expect(done).toEqual(["next"]);
  });
});
