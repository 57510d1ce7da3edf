import { describe, expect, it } from "vitest";
import { type Loan, OutgoingCall } from "./outgoing-call.ts";

class Call extends OutgoingCall {
  override onValue(): void {}
  override onFailure(): void {}
  override onRevoked(): void {}
  override onDeadline(): void {}
}

describe("outgoing call", () => {
  it("waits, without a number and without loans, until it is sent", () => {
    const call = new Call();
    expect([call.phase, call.id, call.settled, call.lends]).toEqual(["waiting", 0, false, false]);
    expect(call.takeLoans()).toEqual([]);
    call.releaseLoans();
  });

  it("releases each loan once", () => {
    const released: number[] = [];
    const loan = (bytes: number): Loan => ({ bytes, release: () => released.push(bytes) });
    const call = new Call();
    call.lend(loan(1));
    call.lend(loan(2));
    expect(call.lends).toBe(true);
    call.releaseLoans();
    call.releaseLoans();
    expect(released).toEqual([1, 2]);
    expect(call.lends).toBe(false);
  });

  it("hands its loans over to one taker, and does not release them itself then", () => {
    let released = 0;
    const call = new Call();
    call.lend({ bytes: 5, release: () => released++ });
    expect(call.takeLoans().map((loan) => loan.bytes)).toEqual([5]);
    expect(call.takeLoans()).toEqual([]);
    call.releaseLoans();
    expect(released).toBe(0);
  });
});
