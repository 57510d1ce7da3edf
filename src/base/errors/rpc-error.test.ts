import { inspect } from "node:util";
import { describe, expect, it, vi } from "vitest";
import { RpcError } from "./rpc-error.ts";

describe("an RpcError", () => {
  it("puts its code before its sentence", () => {
    const error = new RpcError({ code: "not_found", message: "no frame 7" });
    expect(error.message).toBe("[not_found] no frame 7");
    expect(error.name).toBe("RpcError");
    expect(String(error)).toBe("RpcError: [not_found] no frame 7");
    expect(error.stack).toContain("rpc-error.test.ts");
  });

  it("keeps what it is given and leaves the rest absent", () => {
    const bare = new RpcError({ code: "internal", message: "x" });
    expect(Object.keys(bare).sort()).toEqual(["code", "origin", "retryable"]);
    const full = new RpcError({
      code: "unavailable",
      message: "gone",
      reason: "Gone",
      data: { id: 1 },
      origin: "remote",
      fabric: { provider: "tcp", op: "fi_send", code: 104, name: "ECONNRESET" },
      retryable: false,
      retryAfterMs: 20,
      callId: 9,
      method: "frames.v1/stat",
    });
    expect(full).toMatchObject({
      code: "unavailable",
      reason: "Gone",
      data: { id: 1 },
      origin: "remote",
      fabric: { provider: "tcp", op: "fi_send", code: 104, name: "ECONNRESET" },
      retryable: false,
      retryAfterMs: 20,
      callId: 9,
      method: "frames.v1/stat",
    });
  });

  it("keeps its cause, also one that is undefined, and has none otherwise", () => {
    const cause = new Error("below");
    expect(new RpcError({ code: "internal", message: "x", cause }).cause).toBe(cause);
    expect(Object.hasOwn(new RpcError({ code: "internal", message: "x", cause: undefined }), "cause")).toBe(
      true,
    );
    expect(Object.hasOwn(new RpcError({ code: "internal", message: "x" }), "cause")).toBe(false);
  });

  it("comes from the fabric when it has the fabric's detail, else from here", () => {
    const fabric = { provider: "tcp", op: "fi_send", code: 104, name: "ECONNRESET" };
    expect(new RpcError({ code: "unavailable", message: "x", fabric }).origin).toBe("fabric");
    expect(new RpcError({ code: "unavailable", message: "x" }).origin).toBe("local");
  });

  it("is retryable when unavailable or asked to come back, and when told", () => {
    expect(new RpcError({ code: "unavailable", message: "x" }).retryable).toBe(true);
    expect(new RpcError({ code: "resource_exhausted", message: "x", retryAfterMs: 0 }).retryable).toBe(true);
    expect(new RpcError({ code: "resource_exhausted", message: "x" }).retryable).toBe(false);
    expect(new RpcError({ code: "aborted", message: "x", retryable: true }).retryable).toBe(true);
  });

  it("is plain data in JSON, without stack and cause", () => {
    const error = new RpcError({
      code: "not_found",
      message: "no",
      reason: "NotFound",
      cause: new Error("secret"),
    });
    expect(JSON.parse(JSON.stringify(error))).toEqual({
      name: "RpcError",
      message: "[not_found] no",
      code: "not_found",
      origin: "local",
      retryable: false,
      reason: "NotFound",
    });
  });

  it("shows its fields when printed", () => {
    expect(inspect(new RpcError({ code: "not_found", message: "no", callId: 3 }))).toContain("callId: 3");
  });
});

describe("instanceof RpcError", () => {
  it("holds across duplicate copies of the package", async () => {
    vi.resetModules();
    const copy = await import("./rpc-error.ts");
    expect(copy.RpcError).not.toBe(RpcError);
    expect(new copy.RpcError({ code: "internal", message: "x" })).toBeInstanceOf(RpcError);
    expect(new RpcError({ code: "internal", message: "x" })).toBeInstanceOf(copy.RpcError);
  });

  it("fails for anything else", () => {
    for (const value of [new Error("x"), null, undefined, "x", 1, {}, RpcError]) {
      expect((value as unknown) instanceof RpcError).toBe(false);
    }
  });

  it("tells a subclass from the class", () => {
    class Special extends RpcError {}
    expect(new Special({ code: "internal", message: "x" })).toBeInstanceOf(RpcError);
    expect(new Special({ code: "internal", message: "x" })).toBeInstanceOf(Special);
    expect(new RpcError({ code: "internal", message: "x" })).not.toBeInstanceOf(Special);
  });
});

describe("the plain message", () => {
  it("is the message without the code, whatever the text begins with", () => {
    for (const message of ["no such user", "[internal] odd", ""]) {
      const error = new RpcError({ code: "internal", message });
      expect(error.plainMessage).toBe(message);
      expect(error.message).toBe(`[internal] ${message}`);
    }
  });

  it("is no field of the error as data", () => {
    expect(Object.keys(new RpcError({ code: "internal", message: "no" }))).not.toContain("plainMessage");
  });
});
