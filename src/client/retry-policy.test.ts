import { describe, expect, it } from "vitest";
import { checkOptions } from "../base/options/options.ts";
import { attemptFields, clientAttemptFields, resolvePolicy } from "./retry-policy.ts";

describe("what is in force", () => {
  it("is nothing unless somebody asks", () => {
    expect(resolvePolicy({})).toBeUndefined();
    expect(resolvePolicy({ retry: false })).toBeUndefined();
    expect(resolvePolicy({ retry: { attempts: 5 } }, { retry: false })).toBeUndefined();
  });

  it("is the call's word field by field, then the client's, then the default", () => {
    expect(
      resolvePolicy({ retry: { attempts: 5, baseDelayMs: 2 } }, { retry: { baseDelayMs: 7 } }),
    ).toMatchObject({
      attempts: 5,
      baseDelayMs: 7,
      maxDelayMs: 1000,
      attemptTimeoutMs: Number.POSITIVE_INFINITY,
    });
    expect(resolvePolicy({ retry: false }, { retry: {} })?.attempts).toBe(3);
    expect(resolvePolicy({ attemptTimeoutMs: 5 }, { attemptTimeoutMs: 6 })).toMatchObject({
      attempts: 1,
      attemptTimeoutMs: 6,
    });
  });
});

describe("options that cannot be meant", () => {
  const loose = (where: "client" | "call", options: unknown): void =>
    checkOptions(where, options as object, where === "client" ? clientAttemptFields : attemptFields);

  it.each([
    [{ attemptTimeoutMs: 0 }, "client: attemptTimeoutMs must be a number of milliseconds above 0"],
    [{ retry: 3 }, "client: retry must be an object"],
    [{ retry: { attempt: 3 } }, 'client: unknown option "retry.attempt"; did you mean "retry.attempts"?'],
    [{ retry: { attempts: 0 } }, "client: retry.attempts must be an integer from 1 to 100, it is 0"],
    [{ retry: { attempts: 2.5 } }, "client: retry.attempts must be an integer"],
    [{ retry: { baseDelayMs: -1 } }, "client: retry.baseDelayMs"],
    [{ retry: { maxDelayMs: "1s" } }, "client: retry.maxDelayMs"],
    [{ retry: { codes: ["UNAVAILABLE"] } }, "client: retry.codes must be an array of error codes"],
    [{ retry: { budget: { share: 1 } } }, 'client: unknown option "retry.budget.share"'],
    [{ retry: { budget: { ratio: -1 } } }, "client: retry.budget.ratio must be a number from 0"],
  ])("are refused: %j", (options, message) => {
    expect(() => loose("client", options)).toThrow(message);
  });

  it("include a budget of one call", () => {
    expect(() => loose("call", { retry: { budget: {} } })).toThrow('unknown option "retry.budget"');
  });
});
