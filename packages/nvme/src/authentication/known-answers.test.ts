import { createHash } from "node:crypto";
import { describe, expect, it } from "vitest";
import { DhExchange, dhGroupNames, dhValueBytes, primeOf } from "./dh-groups.ts";
import { controllerResponse, hostResponse } from "./responses.ts";
import { hashNames, keyFor, makeSecret, type NvmeHash, parseSecret, type Secret } from "./secret.ts";

/** 32, 48 and 64 bytes, from 1 on, as `nvme gen-dhchap-key -m 0 -l N -s 0102…` of nvme-cli writes them. */
const bytes32 = "AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyAl7OaH";
const bytes48 = "AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyAhIiMkJSYnKCkqKywtLi8wyg3Bcw==";
const bytes64 =
  "AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyAhIiMkJSYnKCkqKywtLi8wMTIzNDU2Nzg5Ojs8PT4/QJn7gCg=";

const secretOf = (text: string): Secret => {
  const secret = parseSecret(text);
  if (secret === undefined) throw new Error(`no secret: ${text}`);
  return secret;
};

describe("a secret", () => {
  it("is read as nvme-cli writes it", () => {
    const counted = (length: number) => Buffer.from(Array.from({ length }, (_, index) => index + 1));
    expect(parseSecret(`DHHC-1:00:${bytes32}:`)).toEqual({ key: counted(32), hash: undefined });
    expect(parseSecret(`DHHC-1:02:${bytes48}:`)).toEqual({ key: counted(48), hash: "sha384" });
    expect(parseSecret(`DHHC-1:01:${bytes64}:`)).toEqual({ key: counted(64), hash: "sha256" });
  });

  it("is the key of a name as nvme-cli transforms it", () => {
    // nvme gen-dhchap-key -m 1 -l 32 -n nqn.2026-11.test:host -s 0102…
    const transformed = secretOf("DHHC-1:01:cGe1CgTXnHKrZgmCB+VBEHoWp7DGGlpz1+XFDAs3DbdwW4TB:");
    expect(keyFor(secretOf(`DHHC-1:01:${bytes32}:`), "nqn.2026-11.test:host")).toEqual(transformed.key);
    expect(keyFor(secretOf(`DHHC-1:00:${bytes32}:`), "any")).toEqual(secretOf(`DHHC-1:00:${bytes32}:`).key);
  });

  it.each([
    ["of another form", `DHHC-2:01:${bytes32}:`],
    ["with a hash that there is not", `DHHC-1:04:${bytes32}:`],
    ["without its end", `DHHC-1:01:${bytes32}`],
    ["with a wrong checksum", `DHHC-1:01:${bytes32.replace("AQID", "AQIE")}:`],
    ["of another length", `DHHC-1:01:${Buffer.alloc(24).toString("base64")}:`],
    ["that is empty", "DHHC-1:01::"],
    ["with a line behind it", `DHHC-1:01:${bytes32}:\n`],
  ])("%s is none", (_, text) => {
    expect(parseSecret(text)).toBeUndefined();
  });

  it.each(hashNames)("is made for %s, another each time", (hash) => {
    const [one, other] = [makeSecret(hash), makeSecret(hash)];
    expect(secretOf(one).hash).toBe(hash);
    expect(one).not.toBe(other);
  });
});

describe("the groups of RFC 7919", () => {
  // SHA-256 of the primes as OpenSSL and Linux have them.
  it.each([
    ["ffdhe2048", 256, "9cd3b7f336872f46c09428d1bbc19877a4d440512cda8d1c1cf0cd6e33698966"],
    ["ffdhe3072", 384, "0eaf67db3a839156d5013494a5318a772b5697d270d721f37f092efc69ea5a17"],
    ["ffdhe4096", 512, "4648414224ac881b3d0dc59b466f96d06a558278776807797ecf1f66ff397b3e"],
    ["ffdhe6144", 768, "227ac9066b3ddd9e193670cda2388fa884f65ba0cf98b742d1fe77a6687c79c7"],
    ["ffdhe8192", 1024, "770b14efaf6f049929c523113b3fa99a8d11dab1b18af3609590122075d19833"],
  ] as const)(
    "%s has its prime, and both sides of an exchange get the same",
    async (group, bytes, digest) => {
      expect(createHash("sha256").update(primeOf(group)).digest("hex")).toBe(digest);
      expect(dhValueBytes(group)).toBe(bytes);
      const [one, other] = [await DhExchange.begin(group, "a"), await DhExchange.begin(group, "b")];
      expect(one.value.length).toBe(bytes);
      expect(await one.secretWith(other.value)).toEqual(await other.secretWith(one.value));
      const prime = BigInt(`0x${primeOf(group).toString("hex")}`);
      const bytesOf = (number: bigint) => Buffer.from(number.toString(16).padStart(2 * bytes, "0"), "hex");
      for (const wrong of [0n, 1n, prime - 1n, prime, prime + 1n, (1n << BigInt(8 * bytes)) - 1n])
        expect(await one.secretWith(bytesOf(wrong))).toBeUndefined();
      for (const right of [2n, 8n]) expect((await one.secretWith(bytesOf(right)))?.length).toBe(bytes);
      expect(await one.secretWith(bytesOf(2n).subarray(1))).toBeUndefined();
      // The base of all groups is 2, so 2 gives the own value, and 4 its square: by numbers without OpenSSL.
      const numberOf = (value: Buffer | undefined) => BigInt(`0x${value?.toString("hex")}`);
      expect(await one.secretWith(bytesOf(2n))).toEqual(one.value);
      expect(numberOf(await one.secretWith(bytesOf(4n)))).toBe(numberOf(one.value) ** 2n % prime);
    },
  );

  it("gives secrets that keep their zeroes in front", async () => {
    const exchange = await DhExchange.begin("ffdhe2048", "host");
    const value = Buffer.alloc(256);
    let secret: Buffer | undefined;
    for (let number = 2; secret?.[0] !== 0; number++) {
      value.writeUInt32BE(number, 252);
      secret = await exchange.secretWith(value);
    }
    expect(secret.length).toBe(256);
  });

  it("has null, which exchanges nothing", () => {
    expect(dhGroupNames[0]).toBe("null");
    expect(dhValueBytes("null")).toBe(0);
  });
});

describe("responses", () => {
  const ends = { hostNqn: "nqn.2026-11.test:host", subsystemNqn: "nqn.2026-11.test:disk" };
  const sevens = Buffer.from(Array.from({ length: 256 }, (_, index) => (index * 7) & 0xff));
  // Computed by a program of its own, in Python, from hashlib and hmac: of the host, and of the controller.
  it.each<readonly [NvmeHash, string, boolean, string, string]>([
    [
      "sha256",
      `DHHC-1:00:${bytes32}:`,
      false,
      "d5e08eb72c3b1643474a124cd564360c3e0b578697a3fd2863a0673b1ae42f61",
      "e76f6a3fe7456c3378fe6b71332fd4c0c9718fc95b8722023dd9e7e18e03b6e0",
    ],
    [
      "sha256",
      `DHHC-1:01:${bytes32}:`,
      true,
      "f8335b57b991c91787220af3728e7b9de59d2d4cda3690ccc3fa28f18aa1fb82",
      "5a20f76ec1482df6105511c14b604ecf1286c0b86e8e0635d2032f9cb8ca840a",
    ],
    [
      "sha384",
      `DHHC-1:02:${bytes48}:`,
      false,
      "aed6f52cac53f39468cdeed41f9b45da8b18152764c09b394218ecd216f4194f56ace6830fc443d1026bcfce1961a3f7",
      "3c6de235f566909c0286fe877a1bfec3396987af33c2137e7333bb93ae1646bf06921683a8fd78a264915104eefad414",
    ],
    [
      "sha384",
      `DHHC-1:03:${bytes64}:`,
      true,
      "3e7a3a8b95803fb8cfbdaca1a8151141bd579b4043e64172e722b404515c4b602faa8e2c352f2fa11da6aae7a4489fb3",
      "608cae05cb3e7e7af72be0f1816489ec4c48b0d0401df3d8ca7f300875dba074b4b139a63639f5c61a29746c850e28ca",
    ],
    [
      "sha512",
      `DHHC-1:03:${bytes64}:`,
      false,
      "65f09c0ef355af8bd82bc1ec9f654e2caee6469189887914a30ed057757283c4d533955b98667a482159629e33784023b7647113ec4640c0e6b2309827c13b8c",
      "305f52bed1e44f23717e376143bbe01496d25bef1f2495678bb02c50e205565c6543031c461c28db14f488c14ebb6cc5a4c523536e01bf42c4c7c51a3be8ccb6",
    ],
    [
      "sha512",
      `DHHC-1:00:${bytes32}:`,
      true,
      "7494648c77c29e389c994c239647dddaeeec44b838871b1afd0aa9ab818f4893316ad1c41ef5ec9486c61e25ac1ac01230a18cf151808dff6481d6e90b329564",
      "1ed741e5658abc2a771a12deb8f4962845ede69c2cb1662bcfce63fde3d6f99b2f2168c3cb4aa31c6d4adb777c26559b0891b46f069a92dc23147744bd49bf4e",
    ],
  ])("by %s with %s, an exchange of keys %s", (hash, text, hasShared, ofHost, ofController) => {
    const length = { sha256: 32, sha384: 48, sha512: 64 }[hash];
    const bytes = Buffer.from(Array.from({ length }, (_, index) => 255 - index));
    const transaction = { id: 0x1234, hash, shared: hasShared ? sevens : undefined, ...ends };
    const challenge = { bytes, sequence: 0x89abcdef };
    expect(hostResponse(transaction, secretOf(text), challenge).toString("hex")).toBe(ofHost);
    expect(controllerResponse(transaction, secretOf(text), challenge).toString("hex")).toBe(ofController);
  });
});
