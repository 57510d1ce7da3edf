import { describe, expect, it } from "vitest";
import { codeNumbers, codeToNumber, type RpcCode } from "../base/errors/code.ts";
import { RpcError } from "../base/errors/rpc-error.ts";
import { packError, packMessage, parseError } from "./fault.ts";

describe("error body", () => {
  it("carries message, reason, data and retry time, and nothing else", () => {
    const error = new RpcError({
      code: "not_found",
      message: "no such file",
      reason: "NotFound",
      data: { id: 1 },
      retryAfterMs: 20,
      method: "files/read",
      callId: 9,
      cause: new Error("secret"),
    });
    expect(packError(error)).toEqual({ m: "no such file", r: "NotFound", d: { id: 1 }, a: 20 });
    expect(packError(new RpcError({ code: "internal", message: "x" }))).toEqual({ m: "x" });
  });

  it("keeps its reason and the beginning of its message where its data cannot be sent", () => {
    const error = new RpcError({
      code: "not_found",
      message: "x".repeat(300),
      reason: "Gone",
      data: () => {},
    });
    expect(packMessage(error)).toEqual({ m: "x".repeat(200), r: "Gone" });
    expect(packMessage(new RpcError({ code: "internal", message: "short" }))).toEqual({ m: "short" });
  });

  it("comes back as a remote error", () => {
    const parsed = parseError(5, { m: "no such file", r: "NotFound", d: [1], a: 20 });
    expect(parsed).toMatchObject({
      code: "not_found",
      origin: "remote",
      reason: "NotFound",
      data: [1],
      retryAfterMs: 20,
    });
    expect(parsed.message).toBe("[not_found] no such file");
  });

  it.each(Object.entries(codeNumbers))("carries %s as word %i", (code, word) => {
    expect(codeToNumber(code as RpcCode)).toBe(word);
    expect(parseError(word, { m: "" }).code).toBe(code);
  });

  it.each([0, 17, 0xffff_ffff])("takes word %i for unknown", (word) => {
    expect(parseError(word, { m: "x" }).code).toBe("unknown");
  });

  it.each([
    undefined,
    null,
    7,
    "x",
    [],
    {},
    { m: 1, r: 2, a: "3" },
    { a: -1 },
    { a: Number.NaN },
    { a: Number.POSITIVE_INFINITY },
  ])("makes an error of any body: %j", (body) => {
    const error = parseError(13, body);
    expect(error).toBeInstanceOf(RpcError);
    expect(error.message).toBe("[internal] the peer gave no message");
    expect(error.reason).toBeUndefined();
    expect(error.retryAfterMs).toBeUndefined();
  });

  it("bounds the message both ways", () => {
    expect(packError(new RpcError({ code: "internal", message: "x".repeat(5000) })).m).toHaveLength(2048);
    expect(parseError(13, { m: "x".repeat(5000) }).message).toHaveLength("[internal] ".length + 2048);
  });
});
