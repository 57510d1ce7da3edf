import { describe, expect, it } from "vitest";
import type { RpcErrorOptions } from "../base/errors/rpc-error.ts";
import { toldMessage } from "./hidden-addresses.ts";

const nested = (message: string): RpcErrorOptions => ({
  code: "unavailable",
  message,
  origin: "local",
  method: "inner.v1/wait",
});

describe("what a caller learns about the error of a nested call", () => {
  it.each([
    ["tcp://10.0.0.7:7400 did not answer within 500 ms", "(address) did not answer within 500 ms"],
    ["cannot reach tcp://db.internal:7400: nobody listens", "cannot reach (address): nobody listens"],
    ["tcp://[fd00::7]:7400 refused the session: closing", "(address) refused the session: closing"],
    ["shm://frames, mem://a-b.c; 'verbs://10.0.0.7:1'.", "(address), (address); '(address)'."],
    ["10.0.0.7:7400 and 10.0.0.8 and [fe80::1%eth0]:80", "(address) and (address) and (address)"],
    ['host "db.internal" was not found', "(address) was not found"],
    ["items[1] of 3.5 ms, libfabric/1.17.1", "items[1] of 3.5 ms, libfabric/1.17.1"],
  ])("has no address: %s", (message, told) => expect(toldMessage(nested(message))).toBe(told));

  it("has none where the connection failed, or the peer said it", () => {
    for (const origin of ["remote", "fabric"] as const)
      expect(toldMessage({ code: "unavailable", message: "tcp://a:1 is gone", origin })).toBe(
        "(address) is gone",
      );
  });

  it("is all that the handler says itself", () => {
    const message = "the printer at 10.0.0.7:631 has no paper, see https://help.example/paper";
    expect(toldMessage({ code: "unavailable", message, origin: "local" })).toBe(message);
  });
});
