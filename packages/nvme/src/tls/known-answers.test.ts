import { createHmac } from "node:crypto";
import { describe, expect, it } from "vitest";
import { keyText } from "../authentication/secret.ts";
import { makeTlsKey, type TlsKey, tlsKeyField } from "./key.ts";
import { formerPreSharedKey, preSharedKey } from "./pre-shared-key.ts";

/** The key of the NVMe/TCP specification's example, and its text form there. */
const configured = Buffer.from("5512dbb6737d0106f65975b773dfb011ffc344bcf442e2dd6d8bc4870b5d5b03", "hex");
const text = "NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:";
const untransformed = text.replace(":01:", ":00:");
/** The key of 48 bytes in the tests of libnvme. */
const longText = "NVMeTLSkey-1:02:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwP/w0S89ELi3W2LxIcLXVsDn8kXZQ==:";

const parse = (value: unknown): TlsKey => tlsKeyField.resolve("test", "key", value) as TlsKey;
const key = parse(text);

describe("a key for TLS in its text form", () => {
  it("is that of the specification's example", () => {
    expect(keyText("NVMeTLSkey-1", 1, configured)).toBe(text);
    expect(key).toEqual({ bytes: configured, isTransformed: true });
    expect(parse(untransformed)).toEqual({ bytes: configured, isTransformed: false });
  });

  it("is made with 32 random bytes", () => {
    const [one, other] = [makeTlsKey(), makeTlsKey()];
    expect(one).toMatch(/^NVMeTLSkey-1:01:[A-Za-z0-9+/]{48}:$/);
    expect(one).not.toBe(other);
    expect(parse(one)).toMatchObject({ isTransformed: true, bytes: { length: 32 } });
  });

  it.each([
    ["of 48 bytes for SHA-384", longText],
    ["of 48 bytes without a transformation", longText.replace(":02:", ":00:")],
  ])("%s is refused by its length, and is not shown", (_, long) => {
    expect(() => parse(long)).toThrow(/^test: key must be a key of 32 bytes: one of 48 needs/);
    expect(() => parse(long)).not.toThrow(/VRLb/);
  });

  it.each([
    ["no text", 7],
    ["an empty text", ""],
    ["another form", text.replace("TLSkey-1", "TLSkey-2")],
    ["the form of another secret", text.replace("NVMeTLSkey-1", "DHHC-1")],
    ["a changed character", text.replace("VRLb", "VRLc")],
    ["a missing checksum", keyText("NVMeTLSkey-1", 1, configured).replace("9LrZ:", ":")],
    ["no end", text.slice(0, -1)],
    ["more behind it", `${text}\n`],
    ["a key of 16 bytes", keyText("NVMeTLSkey-1", 1, configured.subarray(16))],
    ["a key of no bytes", keyText("NVMeTLSkey-1", 1, Buffer.alloc(0))],
    ["32 bytes for SHA-384", text.replace(":01:", ":02:")],
    ["48 bytes for SHA-256", longText.replace(":02:", ":01:")],
    ["an unknown hash function", text.replace(":01:", ":03:")],
  ])("with %s is refused, and is not shown", (_, value) => {
    expect(() => parse(value)).toThrow(/^test: key must be a key for TLS as makeTlsKey gives it/);
    expect(() => parse(value)).not.toThrow(/VRLb/);
  });
});

describe("a pre-shared key", () => {
  /** The names and the results in the tests of libnvme, which cover the transformation and the digest. */
  const ends = { hostNqn: "nqn.psk-test-host", subsystemNqn: "nqn.psk-test-subsys" };

  it("of version 1 has the identity that libnvme 1.16 gives it", () => {
    expect(preSharedKey(key, ends, 1)?.identity).toBe(
      "NVMe1R01 nqn.psk-test-host nqn.psk-test-subsys iSbjiStwJ/1TrTvDlt2fjFmzvsytOJelidNnA+X5lEU=",
    );
  });

  it("of version 1 has the identity that libnvme gave it before", () => {
    expect(formerPreSharedKey(key, ends)?.identity).toBe(
      "NVMe1R01 nqn.psk-test-host nqn.psk-test-subsys 66GuqV08TsAGII39teWUfwQwizjv06Jy8jOcX3NAAzM=",
    );
  });

  it("of version 1 is that of the tests of Linux", () => {
    const bytes = Buffer.from("1733c59fa7f48fcf37f5f26fc4ff0268ad4f78e030f4f3b0bfd1d47e7bb1447a", "hex");
    const names = { hostNqn: "hostnqn", subsystemNqn: "subsysnqn" };
    expect(preSharedKey({ bytes, isTransformed: false }, names, 1)).toEqual({
      identity: "NVMe1R01 hostnqn subsysnqn OldoKuTfKddMuyCznAZojkWD7P4D9/AtzDzLimtOxqI=",
      psk: Buffer.from("3c17da628474a04d2247c4cab47968c915388193f7c071bd9489cc3666cd7cc8", "hex"),
    });
  });

  it("of version 0 has the identity of the specification's example", () => {
    const uuid = "nqn.2014-08.org.nvmexpress:uuid:";
    const hostNqn = `${uuid}f81d4fae-7dec-11d0-a765-00a0c91e6bf6`;
    const subsystemNqn = `${uuid}36ebf5a9-1df9-47b3-a6d0-e9ba32e428a2`;
    const given = preSharedKey(key, { hostNqn, subsystemNqn }, 0);
    expect(given?.identity).toBe(`NVMe0R01 ${hostNqn} ${subsystemNqn}`);
  });

  /** HMAC step by step, as RFC 5869 and RFC 8446 (7.1) write it: no known answer of version 0 is published. */
  it("of version 0 is what the steps of the RFCs give", () => {
    const hmac = (secret: Buffer, ...parts: (Buffer | string)[]) => {
      const sum = createHmac("sha256", secret);
      for (const part of parts) sum.update(part);
      return sum.digest();
    };
    const zeroes = Buffer.alloc(32);
    const retained = hmac(
      hmac(zeroes, configured),
      ...["\0\x20", "\x0d", "tls13 HostNQN", "\x11", ends.hostNqn, "\x01"],
    );
    const identity = "NVMe0R01 nqn.psk-test-host nqn.psk-test-subsys";
    const steps = [
      "\0\x20",
      "\x12",
      "tls13 nvme-tls-psk",
      String.fromCharCode(identity.length),
      identity,
      "\x01",
    ];
    expect(preSharedKey(key, ends, 0)).toEqual({ identity, psk: hmac(hmac(zeroes, retained), ...steps) });
    expect(preSharedKey(parse(untransformed), ends, 0)).toEqual({
      identity,
      psk: hmac(hmac(zeroes, configured), ...steps),
    });
  });

  it("differs with each part that it is made of", () => {
    const others = [
      preSharedKey(key, ends, 0),
      preSharedKey(key, ends, 1),
      formerPreSharedKey(key, ends),
      preSharedKey(parse(untransformed), ends, 0),
      preSharedKey(parse(makeTlsKey()), ends, 0),
      preSharedKey(key, { ...ends, hostNqn: "nqn.other" }, 0),
      preSharedKey(key, { ...ends, subsystemNqn: "nqn.other" }, 0),
    ];
    expect(new Set(others.map((one) => one?.psk.toString("hex"))).size).toBe(others.length);
  });

  it("needs names that an identity has room for", () => {
    const names = (bytes: number) => ({
      hostNqn: `nqn.${"h".repeat(96)}`,
      subsystemNqn: `nqn.${"s".repeat(bytes - 104)}`,
    });
    expect(preSharedKey(key, names(245), 0)?.identity).toHaveLength(255);
    expect(preSharedKey(key, names(246), 0)).toBeUndefined();
    expect(preSharedKey(key, names(201), 1)?.identity).toHaveLength(256);
    expect(preSharedKey(key, names(202), 1)).toBeUndefined();
  });
});
