import { describe, expect, it } from "vitest";
import { addonIfThere } from "../../fabric/libfabric/libfabric.ts";
import { describeSealing } from "./describe-sealing.ts";

describe("describeSealing", () => {
  it("says which library seals, and measures both ciphers", () => {
    const { path, version, tried, suites } = describeSealing();
    expect({ path, version, tried, loaded: true }).toEqual(addonIfThere()?.libcrypto());
    expect(suites.map(({ name }) => name)).toEqual(["aes-256-gcm", "chacha20-poly1305"]);
    for (const { name, bytesPerSecond } of suites) expect(bytesPerSecond, name).toBeGreaterThan(1e6);
    expect(addonIfThere()?.aeads()).toBe(0);
  });
});
