import { describe, expect, it, vi } from "vitest";
import { isLoopback, warnIfUnfiltered } from "./unfiltered.ts";

describe("a port whose bytes nobody checks", () => {
  it("warns where others than this machine reach it", () => {
    const warned = vi.spyOn(process, "emitWarning").mockImplementation(() => {});
    warnIfUnfiltered("tcp://127.0.0.1:7400", "127.0.0.1");
    expect(warned).not.toHaveBeenCalled();
    warnIfUnfiltered("tcp://0.0.0.0:7400", "0.0.0.0");
    expect(warned).toHaveBeenCalledOnce();
    expect(warned.mock.calls[0]?.[0]).toContain(
      "tcp://0.0.0.0:7400 takes bytes from anybody who can connect",
    );
    expect(warned.mock.calls[0]?.[1]).toMatchObject({ code: "CINNABAR_TCP_UNFILTERED" });
  });

  it.each([
    ["127.0.0.1", true],
    ["127.8.9.1", true],
    ["::1", true],
    ["::ffff:127.0.0.1", true],
    ["0.0.0.0", false],
    ["::", false],
    ["10.127.0.1", false],
    ["fe80::1%eth0", false],
  ])("is at %s reached by this machine alone: %s", (host, alone) => {
    expect(isLoopback(host)).toBe(alone);
  });
});
