import { describe, expect, it } from "vitest";
import { codeFromNumber, codeNumbers, codeToNumber, isRpcCode, okNumber, type RpcCode } from "./code.ts";

const codes = Object.keys(codeNumbers) as RpcCode[];

describe("the codes", () => {
  it("have gRPC's numbers, which never change", () => {
    expect(okNumber).toBe(0);
    expect(codeNumbers).toEqual({
      cancelled: 1,
      unknown: 2,
      invalid_argument: 3,
      deadline_exceeded: 4,
      not_found: 5,
      already_exists: 6,
      permission_denied: 7,
      resource_exhausted: 8,
      failed_precondition: 9,
      aborted: 10,
      out_of_range: 11,
      unimplemented: 12,
      internal: 13,
      unavailable: 14,
      data_loss: 15,
      unauthenticated: 16,
    });
    expect(Object.isFrozen(codeNumbers)).toBe(true);
  });

  it("survive the way to a number and back", () => {
    for (const code of codes) expect(codeFromNumber(codeToNumber(code))).toBe(code);
  });

  it("are none for success and for numbers that nobody has given out", () => {
    for (const number of [0, 17, -1, 1.5, 255, Number.NaN]) expect(codeFromNumber(number)).toBeUndefined();
  });

  it("are told from other strings, inherited names among them", () => {
    for (const code of codes) expect(isRpcCode(code)).toBe(true);
    for (const value of ["ok", "toString", "NOT_FOUND", "", 5, null, undefined])
      expect(isRpcCode(value)).toBe(false);
  });
});
