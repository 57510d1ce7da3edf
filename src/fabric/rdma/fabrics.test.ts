import { describe, expect, it } from "vitest";
import { providers } from "../libfabric/libfabric.ts";
import { describeFabrics } from "./fabrics.ts";

describe("describeFabrics", () => {
  it("says of each provider what providers() says, and what it offers", () => {
    const { fabrics } = describeFabrics();
    expect(fabrics.map(({ domains: _, ...report }) => report)).toEqual(providers().providers);
    for (const { scheme, available, domains } of fabrics)
      expect(domains.length > 0, scheme).toBe(
        available && scheme !== "mem" && !scheme.startsWith("net") && scheme !== "shm",
      );
  });

  it("names the addresses of tcp, and what every provider must be able to do", () => {
    const { fabrics } = describeFabrics();
    const tcp = fabrics.find(({ scheme, available }) => scheme === "tcp" && available);
    expect(tcp?.domains.map(({ address }) => address)).toContain("127.0.0.1");
    for (const { domains } of fabrics) {
      for (const domain of domains) {
        expect(domain.capabilities).toEqual(expect.arrayContaining(["FI_MSG", "FI_RMA"]));
        expect(domain.maxMessageBytes).toBeGreaterThan(65_536);
      }
    }
  });

  it("tells versions", () => {
    const { versions } = describeFabrics();
    expect(versions).toEqual({
      cinnabar: expect.stringMatching(/^\d+\.\d+\.\d+/),
      node: process.versions.node,
      libfabric: expect.stringMatching(/^\d+\.\d+$/),
    });
  });

  it("lists what is changed in libraries, by names that switch it off", () => {
    const { patches } = describeFabrics();
    expect(patches.map(({ name }) => name)).toEqual([
      "process-copies",
      "tcp-sockets",
      "connection-refusals",
      "kernel-symbols",
    ]);
    for (const { name, switchOff, what, why } of patches) {
      expect(switchOff).toBe(`CINNABAR_NO_PATCHES=${name}`);
      expect(what.length * why.length).toBeGreaterThan(0);
    }
    process.env.CINNABAR_NO_PATCHES = "all";
    try {
      for (const { state } of describeFabrics().patches) expect(["off", "applied"]).toContain(state);
    } finally {
      delete process.env.CINNABAR_NO_PATCHES;
    }
  });

  it("survives as JSON", () => {
    const report = describeFabrics();
    expect(JSON.parse(JSON.stringify(report))).toEqual(report);
  });
});
