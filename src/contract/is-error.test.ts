import { describe, expect, it, vi } from "vitest";
import { z } from "zod";
import { RpcError } from "../base/errors/rpc-error.ts";
import { isError } from "./is-error.ts";
import { service } from "./service.ts";
import { unary } from "./unary.ts";

const NotFound = z.object({ id: z.string() });
const Frames = service("frames.v1", {
  stat: unary({ errors: { NotFound } }),
  load: unary({ errors: { NotFound } }),
  ping: unary(),
});

const notFound = (method: string) =>
  new RpcError({ code: "failed_precondition", message: "no", reason: "NotFound", data: { id: "a" }, method });

describe("isError", () => {
  it("knows the declared error of the method", () => {
    expect(isError(notFound("frames.v1/stat"), Frames, "stat", "NotFound")).toBe(true);
  });

  it("does not take another method's or another service's error of the same reason", () => {
    expect(isError(notFound("frames.v1/load"), Frames, "stat", "NotFound")).toBe(false);
    expect(isError(notFound("frames.v2/stat"), Frames, "stat", "NotFound")).toBe(false);
  });

  it("does not take other errors and values", () => {
    const plain = new RpcError({ code: "not_found", message: "no", method: "frames.v1/stat" });
    for (const value of [
      plain,
      new Error("x"),
      { reason: "NotFound", method: "frames.v1/stat" },
      null,
      undefined,
    ]) {
      expect(isError(value, Frames, "stat", "NotFound")).toBe(false);
    }
  });

  it("takes an error of another copy of the package", async () => {
    vi.resetModules();
    const copy = await import("../base/errors/rpc-error.ts");
    const error = new copy.RpcError({
      code: "internal",
      message: "x",
      reason: "NotFound",
      method: "frames.v1/stat",
    });
    expect(isError(error, Frames, "stat", "NotFound")).toBe(true);
  });

  it("says so when the contract has no such method or error", () => {
    const loose = isError as (...args: unknown[]) => boolean;
    expect(() => loose(null, Frames, "stats", "NotFound")).toThrow(
      'service "frames.v1" has no method "stats"',
    );
    expect(() => loose(null, Frames, "toString", "NotFound")).toThrow('has no method "toString"');
    expect(() => loose(null, Frames, "ping", "NotFound")).toThrow(
      'frames.v1/ping does not declare the error "NotFound"',
    );
  });
});
