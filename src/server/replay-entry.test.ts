import { describe, expect, it } from "vitest";
import { RpcError } from "../base/errors/rpc-error.ts";
import { IncomingCall, type Outcome } from "../call/incoming-call.ts";
import { FakeServices } from "../session/connection/fake-services.test-support.ts";
import type { PeerLink } from "../transfer/control/peer-link.ts";
import { ReplayEntry } from "./replay-entry.ts";

const lost = new RpcError({ code: "unavailable", message: "lost" });
const late = new RpcError({ code: "deadline_exceeded", message: "late" });

function setUp() {
  const answers: Outcome[] = [];
  const services = new FakeServices();
  const session = { services, clock: services.clock } as unknown as PeerLink;
  const takeOutcome = (_: IncomingCall, outcome: Outcome) => void answers.push(outcome);
  const request = () => new IncomingCall({ takeOutcome }, 1, 0);
  const first = request();
  const entry = new ReplayEntry(() => {}, session, first, 1n, 1);
  entry.call.handler = "here";
  const join = () => {
    const joined = request();
    entry.join(joined, session);
    return joined;
  };
  return { answers, entry, first, join };
}

describe("an execution that is joined", () => {
  it("holds those that wait and nobody else, however many come", () => {
    const { answers, entry, first, join } = setUp();
    for (let i = 0; i < 1000; i++) join().abort(late);
    for (let i = 0; i < 1000; i++) join().abandon(lost);
    expect(entry.waiting).toBe(1);
    first.abandon(lost);
    expect([entry.waiting, entry.call.open]).toEqual([0, true]);
    const last = join();
    const before = answers.length;
    entry.call.settle({ value: "done" });
    expect([answers.slice(before), entry.waiting, last.open]).toEqual([[{ value: "done" }], 0, false]);
  });
});
