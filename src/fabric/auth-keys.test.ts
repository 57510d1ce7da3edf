import { inspect } from "node:util";
import { describe, expect, it } from "vitest";
import { AuthKeys } from "./auth-keys.ts";

const secret = "5ec4e7005ec4e7005ec4e7005ec4e700";

describe("AuthKeys", () => {
  it("takes bytes and hexadecimal digits, and keeps a copy", () => {
    const bytes = Uint8Array.of(1, 2, 3);
    const keys = new AuthKeys("keys", { psm2: bytes, cxi: "0aFF" });
    bytes.fill(0);
    expect(keys.of("psm2")).toEqual(Uint8Array.of(1, 2, 3));
    expect(keys.of("cxi")).toEqual(Uint8Array.of(10, 255));
    expect(keys.of("tcp")).toBeUndefined();
    expect(keys.schemes).toEqual(["psm2", "cxi"]);
  });

  it.each([
    ["0", "keys.psm2 must be bytes or pairs of hexadecimal digits"],
    ["", "keys.psm2 must be bytes or pairs of hexadecimal digits"],
    [`${secret}z`, "keys.psm2 must be bytes or pairs of hexadecimal digits"],
    [7, "keys.psm2 must be bytes or pairs of hexadecimal digits"],
    [new Uint8Array(0), "keys.psm2 must have 1 to 1024 bytes, it has 0"],
    ["00".repeat(1025), "keys.psm2 must have 1 to 1024 bytes, it has 1025"],
  ])("refuses %j without repeating it", (key, message) => {
    expect(() => new AuthKeys("keys", { psm2: key as string })).toThrow(message);
    expect(() => new AuthKeys("keys", { psm2: key as string })).not.toThrow(secret);
  });

  it("is not to be seen", () => {
    const keys = new AuthKeys("keys", { psm2: secret });
    for (const shown of [inspect(keys, { depth: 9, showHidden: true }), JSON.stringify(keys), `${keys}`])
      expect(shown.replace(/[^0-9a-f]/g, "")).not.toContain("5ec4e7");
  });
});
