import { describe, expect, it } from "vitest";
import type { Grant } from "../memory/grant.ts";
import { OutgoingCall } from "./outgoing-call.ts";

class Call extends OutgoingCall {
  readonly terms = {
    priority: "normal",
    failsWhenFull: false,
    isOneWay: false,
    isBuiltin: false,
    key: undefined,
  } as const;
  override onValue(): void {}
  override onFailure(): void {}
  protected override endEarly(): void {}
  override onDeadline(): void {}
}

describe("outgoing call", () => {
  it("waits, without a number and without grants, until it is sent", () => {
    const call = new Call();
    expect([call.phase, call.id, call.settled, call.hasGrants]).toEqual(["waiting", 0, false, false]);
    expect(call.takeGrants()).toEqual([]);
    call.releaseGrants();
  });

  it("releases each grant once", () => {
    const released: number[] = [];
    const grant = (bytes: number): Grant => ({
      bytes,
      memory: [],
      release: () => released.push(bytes),
    });
    const call = new Call();
    call.addGrant(grant(1));
    call.addGrant(grant(2));
    expect(call.hasGrants).toBe(true);
    call.releaseGrants();
    call.releaseGrants();
    expect(released).toEqual([1, 2]);
    expect(call.hasGrants).toBe(false);
  });

  it("hands its grants over to one taker, and does not release them itself then", () => {
    let released = 0;
    const call = new Call();
    call.addGrant({ bytes: 5, memory: [], release: () => released++ });
    expect(call.takeGrants().map((grant) => grant.bytes)).toEqual([5]);
    expect(call.takeGrants()).toEqual([]);
    call.releaseGrants();
    expect(released).toBe(0);
  });
});
