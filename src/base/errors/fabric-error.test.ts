import { constants } from "node:os";
import { describe, expect, it } from "vitest";
import { fabricError, fabricErrorCode, fabricErrorName } from "./fabric-error.ts";

describe("the fabric's numbers", () => {
  it.each([
    ["ECONNREFUSED", 111, "unavailable"],
    ["ECONNRESET", 104, "unavailable"],
    ["ECONNABORTED", 103, "unavailable"],
    ["ENOTCONN", 107, "unavailable"],
    ["EHOSTUNREACH", 113, "unavailable"],
    ["ETIMEDOUT", 110, "unavailable"],
    ["ECANCELED", 125, "unavailable"],
    ["EIO", 5, "unavailable"],
    ["EACCES", 13, "permission_denied"],
    ["EPERM", 1, "permission_denied"],
    ["EKEYREJECTED", 129, "permission_denied"],
    ["FI_ENOKEY", 266, "permission_denied"],
    ["EINVAL", 22, "internal"],
    ["ENOMEM", 12, "resource_exhausted"],
    ["EAGAIN", 11, "resource_exhausted"],
    ["ENOSPC", 28, "resource_exhausted"],
    ["EADDRINUSE", 98, "already_exists"],
    ["ENOSYS", 38, "unimplemented"],
    ["EOPNOTSUPP", 95, "unimplemented"],
    ["FI_ETRUNC", 265, "internal"],
    ["FI_ENORX", 269, "resource_exhausted"],
  ] as const)("name %s (%i) and call it %s, whatever the sign", (name, number, code) => {
    expect(fabricErrorName(number)).toBe(name);
    expect(fabricErrorName(-number)).toBe(name);
    expect(fabricErrorCode(number)).toBe(code);
    expect(fabricErrorCode(-number)).toBe(code);
  });

  it.runIf(process.platform === "linux")("are the system's own below 256", () => {
    const numbers = constants.errno as Record<string, number>;
    let compared = 0;
    for (let number = 1; number < 256; number++) {
      const system = numbers[fabricErrorName(number)];
      if (system === undefined) continue;
      expect([fabricErrorName(number), number]).toEqual([fabricErrorName(number), system]);
      compared++;
    }
    expect(compared).toBeGreaterThan(35);
  });

  it("are unknown outside the table", () => {
    for (const number of [0, 77, 9999, Number.NaN]) expect(fabricErrorCode(number)).toBe("unknown");
    expect(fabricErrorName(-77)).toBe("errno 77");
  });
});

describe("an error of the fabric", () => {
  it("keeps what the fabric said", () => {
    const error = fabricError({ provider: "tcp", op: "fi_write", code: -104, callId: 4, method: "a/b" });
    expect(error).toMatchObject({
      message: "[unavailable] fi_write over tcp failed: ECONNRESET (104)",
      code: "unavailable",
      origin: "fabric",
      retryable: true,
      fabric: { provider: "tcp", op: "fi_write", code: 104, name: "ECONNRESET" },
      callId: 4,
      method: "a/b",
    });
    expect(Object.hasOwn(error, "cause")).toBe(false);
  });

  it("is retryable where a queue or a peer may recover", () => {
    const of = (code: number) => fabricError({ provider: "tcp", op: "fi_send", code }).retryable;
    expect(of(11)).toBe(true);
    expect(of(22)).toBe(false);
    expect(fabricError({ provider: "tcp", op: "fi_send", code: 11, retryable: false }).retryable).toBe(false);
  });

  it("takes a better code, name, sentence and cause from one who knows them", () => {
    const cause = new Error("below");
    const error = fabricError({
      provider: "shm",
      op: "fi_getinfo",
      code: 61,
      name: "No data available",
      message: "no provider for shm",
      rpcCode: "failed_precondition",
      cause,
    });
    expect(error).toMatchObject({
      message: "[failed_precondition] no provider for shm",
      retryable: false,
      cause,
    });
    expect(error.fabric?.name).toBe("No data available");
  });
});
