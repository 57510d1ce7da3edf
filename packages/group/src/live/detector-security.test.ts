import { expect, it, vi } from "vitest";
import { type DetectorSecurity, EngineSecurity, readCredentials } from "./detector-security.ts";

it("functions that read certificates are called, and what a thread is sent has none", () => {
  const security = { tls: { cert: () => "cert", key: "key", ca: () => ["ca"], crl: () => "crl" } };
  const read = readCredentials(security);
  expect(structuredClone(read)).toEqual({ tls: { cert: "cert", key: "key", ca: ["ca"], crl: "crl" } });
  const psk = { identity: "all", key: new Uint8Array(32) };
  expect(readCredentials({ psk, shm: "tls" })).toEqual({ psk, shm: "tls" });
});

it.each([
  ["allow", () => true],
  ["bulk", "plain"],
])("there is no option %s", (name, value) => {
  expect(() => readCredentials({ [name]: value } as DetectorSecurity)).toThrow(
    `failure detector: unknown option "security.${name}"`,
  );
});

it("the engine reads the certificates that came last, and the former ones where these cannot be used", () => {
  const certificates = (name: string) => ({ tls: { cert: name, key: name, ca: name } });
  const security = new EngineSecurity(certificates("first"));
  const { cert, crl } = security.options.tls ?? {};
  const current = cert as () => string;
  expect([current(), crl]).toEqual(["first", undefined]);
  const apply = vi.fn();
  security.replace(certificates("second"), apply);
  expect([current(), apply.mock.calls.length]).toEqual(["second", 1]);
  const refuse = () => {
    throw new TypeError("no certificate");
  };
  expect(() => security.replace(certificates("third"), refuse)).toThrow("no certificate");
  expect(current()).toBe("second");
});
