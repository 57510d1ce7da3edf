import { expect, it, vi } from "vitest";
import type { Outbox } from "../channel/outbox.ts";
import { SendTurns } from "./item-sender.ts";

it("has no turn wait for what may arrive behind which its takers go on", () => {
  const outbox = { congested: false };
  const progress = { wake: () => {}, flushSoon: () => {}, goOn: vi.fn() };
  const turns = new SendTurns(outbox as Outbox, progress);
  const taken: string[] = [];
  turns.flush();
  expect(progress.goOn).not.toHaveBeenCalled();

  turns.enroll({ onTurn: () => taken.push("first") });
  outbox.congested = true;
  turns.flush();
  expect([taken, progress.goOn.mock.calls.length]).toEqual([[], 0]);

  outbox.congested = false;
  turns.flush();
  expect([taken, progress.goOn.mock.calls.length]).toEqual([["first"], 1]);
  turns.flush();
  expect(progress.goOn).toHaveBeenCalledTimes(1);
});
