import { describe, expect, it } from "vitest";
import { hostOfAddress } from "./raw-address.ts";

const bytes = (...parts: number[]) => Uint8Array.from(parts);

describe("the host in a raw address", () => {
  it("is found for IPv4 and IPv6", () => {
    expect(hostOfAddress(bytes(2, 0, 0x1c, 0xe8, 10, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0))).toBe("10.0.0.7");
    const six = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    expect(hostOfAddress(bytes(10, 0, 0x1c, 0xe8, 0, 0, 0, 0, ...six, 0, 0, 0, 0))).toBe(
      "fe80:0:0:0:0:0:0:1",
    );
  });

  it("is unknown in anything else", () => {
    expect(hostOfAddress(bytes())).toBe("");
    expect(hostOfAddress(new TextEncoder().encode("a name on the mem fabric"))).toBe("");
    expect(hostOfAddress(bytes(10, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1))).toBe("");
  });
});
