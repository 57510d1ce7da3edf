import { describe, expect, it } from "vitest";
import { RequestCredits } from "./request-credits.ts";

describe("the credits of an engine", () => {
  it("are all that one session may have, until the sessions are too many for that", () => {
    const credits = new RequestCredits(65_536, 4096);
    expect([credits.shareAmong(1), credits.share]).toEqual([false, 4096]);
    expect([credits.shareAmong(16), credits.share]).toEqual([false, 4096]);
    expect([credits.shareAmong(17), credits.share]).toEqual([true, 2048]);
    expect([credits.shareAmong(32), credits.share]).toEqual([false, 2048]);
    expect([credits.shareAmong(1000), credits.share]).toEqual([true, 64]);
  });

  it("do not flap when sessions come and go", () => {
    const credits = new RequestCredits(65_536, 4096);
    credits.shareAmong(17);
    expect([credits.shareAmong(16), credits.share]).toEqual([false, 2048]);
    expect([credits.shareAmong(17), credits.share]).toEqual([false, 2048]);
    expect([credits.shareAmong(12), credits.share]).toEqual([true, 4096]);
  });

  it("are never fewer than a session needs to get on, nor more than its slots", () => {
    const credits = new RequestCredits(100, 50);
    credits.shareAmong(90);
    expect(credits.share).toBe(16);
    const few = new RequestCredits(100, 5);
    few.shareAmong(1000);
    expect(few.share).toBe(5);
  });

  it("are held to in all", () => {
    const credits = new RequestCredits(2, 2);
    expect([credits.enter(), credits.enter(), credits.enter(), credits.open]).toEqual([true, true, false, 3]);
    credits.leave();
    expect(credits.enter()).toBe(false);
    credits.leave();
    credits.leave();
    expect(credits.enter()).toBe(true);
  });

  it("are reserved for each session, whatever others hold", () => {
    const credits = new RequestCredits(65_536, 4096, 1024);
    // Sixteen for each of 1,024 sessions, in addition to the shared requests, which stay the same.
    expect([credits.shareAmong(16), credits.share]).toEqual([false, 4096]);
    expect([credits.shareAmong(17), credits.share]).toEqual([true, 2048]);
    let held = 0;
    while (credits.enter(16)) held++;
    expect(held).toBe(65_536);
    // The refused request leaves, and another makes room.
    credits.leave(16);
    credits.leave(16);
    expect(credits.enter(16)).toBe(true);
    for (let session = 0; session < 1024; session++)
      for (let own = 0; own < 16; own++) expect(credits.enter(own)).toBe(true);
    expect(credits.open).toBe(65_536 + 16_384);
  });

  it("are not reserved where there are too few for all", () => {
    const credits = new RequestCredits(20, 20, 1024);
    for (let i = 0; i < 20; i++) expect(credits.enter(0)).toBe(true);
    expect(credits.enter(0)).toBe(false);
  });
});
