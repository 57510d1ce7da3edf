import { describe, expect, it } from "vitest";
import { reconnectField, resolveBalanceOptions, resolveConnectOptions } from "./connect-options.ts";

describe("the options of connect", () => {
  it("have defaults, for one URL and for several", () => {
    const common = {
      timeoutMs: 700,
      reconnect: { whileLost: "fail", baseDelayMs: 50, maxDelayMs: 2000 },
      window: {
        maxInFlight: 2 ** 20,
        maxWaiting: 131_072,
        maxWaitingBytes: 64 * 1024 * 1024,
      },
      name: undefined,
    };
    expect(resolveConnectOptions({}, 700)).toEqual({ ...common, incarnation: undefined });
    expect(resolveBalanceOptions({}, 700)).toMatchObject({ ...common, pin: undefined, slowStartMs: 0 });
  });

  it.each([
    [{ whileLost: "hope" }, TypeError],
    [{ baseDelayMs: 0 }, RangeError],
    [{ maxDelayMs: Number.NaN }, TypeError],
    [{ retries: 3 }, TypeError],
  ])("refuse %j for reconnect", (options, kind) => {
    expect(() => reconnectField.resolve("connect", "reconnect", options as never)).toThrow(kind);
  });
});
