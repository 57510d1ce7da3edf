import { afterEach, describe, expect, it, vi } from "vitest";
import { hostOfAddress, localAddressTowards, numericHost } from "./host.ts";

/** The failure of opening a datagram socket and of looking a name up. */
const fault = vi.hoisted(() => ({ refusal: undefined as { code: string } | undefined }));
vi.mock("node:dgram", async (original) => {
  const { EventEmitter } = await import("node:events");
  const real = await original<typeof import("node:dgram")>();
  class Refused extends EventEmitter {
    connect() {
      setImmediate(() => this.emit("error", fault.refusal));
    }
    close() {}
  }
  return {
    ...real,
    createSocket: (kind: "udp4") => (fault.refusal ? new Refused() : real.createSocket(kind)),
  };
});
vi.mock("node:dns/promises", async (original) => {
  const real = await original<typeof import("node:dns/promises")>();
  return {
    ...real,
    lookup: (host: string) => (fault.refusal ? Promise.reject(fault.refusal) : real.lookup(host)),
  };
});
afterEach(() => {
  fault.refusal = undefined;
});

describe("a way to a host", () => {
  it("leaves from a local address", async () => {
    expect(await localAddressTowards("127.0.0.1", 9)).toBe("127.0.0.1");
  });

  it.each([
    ["EMFILE", "resource_exhausted", "this process has no file descriptor left"],
    ["ENFILE", "resource_exhausted", "this machine has no file descriptor left"],
    ["ERR_ACCESS_DENIED", "permission_denied", "--allow-net"],
  ])("is not blamed for %s", async (code, rpcCode, sentence) => {
    const refusal = { code };
    fault.refusal = refusal;
    const expected = { code: rpcCode, message: expect.stringContaining(sentence), cause: refusal };
    await expect(localAddressTowards("10.0.0.7", 9)).rejects.toMatchObject(expected);
    await expect(numericHost("a.example")).rejects.toMatchObject(expected);
  });

  it("is missing", async () => {
    fault.refusal = { code: "ENETUNREACH" };
    await expect(localAddressTowards("10.0.0.7", 9)).rejects.toMatchObject({
      code: "unavailable",
      message: '[unavailable] no route to host "10.0.0.7"',
    });
    await expect(numericHost("a.example")).rejects.toMatchObject({
      message: '[unavailable] host "a.example" was not found',
    });
  });
});

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
