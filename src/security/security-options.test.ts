import { inspect } from "node:util";
import { describe, expect, it } from "vitest";
import type { PskCredentials, TlsCredentials } from "./credential-options.ts";
import { assertSecurable, isSealed, resolveSecurity, type SecurityOptions } from "./security-options.ts";

const key = new Uint8Array(32).fill(7);
const tls = { cert: "cert", key: "key", ca: "ca" };
const resolve = (options: object) => resolveSecurity("test", "security", options as SecurityOptions);

describe("the options of security", () => {
  it("have defaults", () => {
    const { credentials, identify, ...rest } = resolve({ tls });
    expect(credentials?.kind).toBe("tls");
    expect(identify({ uris: [], dnsNames: ["a.example"] } as never)).toBe("a.example");
    expect(rest).toEqual({
      bulk: "sealed",
      shm: "same-user",
      allowPlain: false,
      handshakes: { maxOpen: 64, timeoutMs: 5000, share: 0.2 },
      suites: ["aes-256-gcm", "chacha20-poly1305"],
      allow: undefined,
      authorize: undefined,
    });
  });

  it.each([
    [{ tls, psk: { identity: "a", key } }, "tls and psk exclude each other"],
    [{ tsl: tls }, 'unknown option "security.tsl"; did you mean "security.tls"?'],
    [{ tls: { ...tls, crt: "x" } }, 'unknown option "security.tls.crt"'],
    [{ tls: { cert: "cert", key: "key" } }, "security.tls.ca is missing"],
    [{ tls: { ...tls, cert: 5 } }, "security.tls.cert must be PEM"],
    [{ tls: { ...tls, crl: [] } }, "security.tls.crl must be PEM"],
    [{ psk: { identity: "a", key: new Uint8Array(31) } }, "32 to 256 bytes, it has 31; a password is no key"],
    [{ psk: { identity: "a", key: new Uint8Array(257) } }, "32 to 256 bytes, it has 257"],
    [{ psk: { identity: "a", key: "secret" } }, "security.psk.key must be a Uint8Array"],
    [{ psk: { identity: "a".repeat(129), key } }, "security.psk.identity must have 1 to 128 bytes"],
    [{ psk: { identity: "", key } }, "security.psk.identity must have 1 to 128 bytes"],
    [{ psk: { identity: "a\0b", key } }, "none that is 0"],
    [{ psk: { key } }, "identity and key belong together"],
    [{ psk: {} }, "must have identity and key, or lookup"],
    [{ psk: { lookup: 5 } }, "security.psk.lookup must be a function"],
    [{ psk: { identity: "a", key }, identify: () => "x" }, "identify has no effect with psk"],
    [{ tls, bulk: "none" }, 'security.bulk must be "sealed" or "plain", it is "none"'],
    [{ tls, shm: "none" }, "security.shm must be"],
    [{ tls, allowPlain: "yes" }, "allowPlain must be true or false"],
    [{ tls, suites: [] }, "security.suites must be an array of different ciphers"],
    [{ tls, suites: ["aes-128-gcm"] }, "security.suites[0] must be"],
    [
      { tls, suites: ["aes-256-gcm", "aes-256-gcm"] },
      "security.suites must be an array of different ciphers",
    ],
    [{ tls, handshakes: { maxOpen: 0 } }, "security.handshakes.maxOpen must be an integer from 1 to 65536"],
    [{ tls, handshakes: { maxOpen: 1.5 } }, "maxOpen must be an integer"],
    [{ tls, handshakes: { timeoutMs: 99 } }, "timeoutMs must be a number of milliseconds from 100"],
    [{ tls, handshakes: { share: 1.1 } }, "share must be a number from 0.01 to 1"],
    [
      { tls, handshakes: { shares: 1 } },
      'unknown option "security.handshakes.shares"; did you mean "security.handshakes.share"?',
    ],
    [{ tls, allow: true }, "security.allow must be a function"],
    [{ tls, authorize: "no" }, "security.authorize must be a function"],
    [{ shm: "tls" }, 'security.shm is "tls", and neither tls nor psk is given'],
    [{ bulk: "plain" }, "security.bulk has no effect without tls or psk"],
    [{ allowPlain: true }, "security.allowPlain has no effect without tls or psk"],
  ])("that are wrong are refused: %j", (options, text) => {
    expect(() => resolve(options)).toThrow(text);
  });

  it("read PEM again each time it is asked for, and check what they read", () => {
    let cert: unknown = "first";
    const { credentials } = resolve({ tls: { ...tls, cert: () => cert } });
    const { cert: read, crl } = credentials as TlsCredentials;
    expect(read()).toEqual([Buffer.from("first")]);
    cert = [Buffer.from("second"), "third"];
    expect(read()).toEqual([Buffer.from("second"), Buffer.from("third")]);
    cert = undefined;
    expect(read).toThrow("what test: security.tls.cert returns must be PEM");
    expect(crl).toBeUndefined();
  });

  it("copy a key, and show it nowhere", () => {
    const given = Uint8Array.from(key);
    const { credentials } = resolve({ psk: { identity: "pair", key: given } });
    given.fill(0);
    const { own, lookup } = credentials as PskCredentials;
    expect(own?.key).toEqual(key);
    expect(lookup("pair")).toEqual(key);
    expect(lookup("other")).toBeUndefined();
    for (const text of [inspect(credentials, { depth: 9, showHidden: true }), JSON.stringify(credentials)])
      expect(text).not.toMatch(/7, 7|070707/);
  });

  it("check the keys that a lookup finds", () => {
    const keys: Record<string, unknown> = { good: key, short: new Uint8Array(16), text: "secret" };
    const { credentials } = resolve({ psk: { lookup: (identity: string) => keys[identity] } });
    const { own, lookup } = credentials as PskCredentials;
    expect(own).toBeUndefined();
    expect(lookup("good")).toBe(key);
    expect(lookup("unknown")).toBeUndefined();
    expect(() => lookup("short")).toThrow("what test: security.psk.lookup returns must have 32 to 256 bytes");
    expect(() => lookup("text")).toThrow("must be a Uint8Array");
  });
});

describe("the policy by fabric", () => {
  it("seals every fabric but shm and mem, and shm where it is asked for", () => {
    const security = resolve({ tls });
    expect(isSealed(security, "tcp")).toBe(true);
    expect(isSealed(security, "verbs")).toBe(true);
    expect(isSealed(security, "psm3")).toBe(true);
    expect(isSealed(security, "shm")).toBe(false);
    expect(isSealed(security, "mem")).toBe(false);
    expect(isSealed(resolve({ tls, shm: "tls" }), "shm")).toBe(true);
    expect(isSealed(resolve({ tls, shm: "tls" }), "mem")).toBe(false);
    expect(isSealed(undefined, "tcp")).toBe(false);
  });

  it("refuses a fabric where nothing proves who a peer is", () => {
    const security = resolve({ allow: () => true });
    assertSecurable(security, "shm");
    assertSecurable(security, "mem");
    assertSecurable(undefined, "tcp");
    expect(() => assertSecurable(security, "tcp")).toThrow(
      "security has neither tls nor psk, which tcp needs",
    );
  });
});
