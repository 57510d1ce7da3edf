import { describe, expect, it } from "vitest";
import { certificateOf, type ParsedCertificate } from "./certificate.ts";
import {
  type CertificateIdentity,
  identifyByName,
  identityOfCertificate,
  identityOfProcess,
  identityOfPsk,
  isSamePrincipal,
  localIdentity,
} from "./identity.ts";

const parsed = (subjectAltName?: string): ParsedCertificate => ({
  subject: "CN=admin",
  issuer: "CN=ca",
  subjectAltName,
  serialNumber: "01",
  fingerprint256: "AA:BB",
  validFrom: "Nov  1 00:00:00 2026 GMT",
  validTo: "Nov  1 00:00:00 2027 GMT",
});
const named = (subjectAltName?: string) =>
  identityOfCertificate(certificateOf(parsed(subjectAltName)), identifyByName);

describe("the names of a certificate", () => {
  it("are read by kind, in their order", () => {
    const text =
      "DNS:a.example, IP Address:10.0.0.7, URI:spiffe://c/x, DNS:b.example, IP Address:0:0:0:0:0:0:0:1";
    expect(certificateOf(parsed(text))).toMatchObject({
      dnsNames: ["a.example", "b.example"],
      ips: ["10.0.0.7", "0:0:0:0:0:0:0:1"],
      uris: ["spiffe://c/x"],
      validTo: new Date("2027-11-01T00:00:00Z"),
    });
  });

  it("cannot hide another name in one that has commas or quotes", () => {
    const text = String.raw`URI:"http://a/?x, DNS:evil.example", DNS:"b, URI:spiffe://c/\"root\"", DNS:good.example`;
    expect(certificateOf(parsed(text))).toMatchObject({
      uris: ["http://a/?x, DNS:evil.example"],
      dnsNames: [`b, URI:spiffe://c/"root"`, "good.example"],
    });
  });

  it.each(['DNS:"a', 'DNS:"a"x, DNS:b', "nothing", 'DNS:"\\x"'])("are refused when in doubt: %s", (text) => {
    expect(() => certificateOf(parsed(text))).toThrow("cannot be read");
  });
});

describe("the identity of a certificate", () => {
  it("is its first URI, else its first DNS name, and never the CN", () => {
    expect(named("DNS:a.example, URI:spiffe://c/x")).toMatchObject({
      kind: "certificate",
      name: "spiffe://c/x",
      names: ["spiffe://c/x", "a.example"],
    });
    expect(named("IP Address:10.0.0.1, DNS:a.example")?.name).toBe("a.example");
    expect(named("IP Address:10.0.0.1")).toBeUndefined();
    expect(named(undefined)).toBeUndefined();
  });

  it("is what a user's function says, who may say none", () => {
    const certificate = certificateOf(parsed("DNS:a.example"));
    expect(identityOfCertificate(certificate, ({ dnsNames }) => `node ${dnsNames[0]}`)?.name).toBe(
      "node a.example",
    );
    expect(identityOfCertificate(certificate, () => undefined)).toBeUndefined();
    expect(identityOfCertificate(certificate, () => "")).toBeUndefined();
    expect(() => identityOfCertificate(certificate, (() => 7) as never)).toThrow(
      "security.identify must return",
    );
  });

  it("cannot be changed", () => {
    const identity = named("DNS:a.example") as CertificateIdentity;
    expect(() => Object.assign(identity, { name: "root" })).toThrow(TypeError);
    expect(() => (identity.names as string[]).push("root")).toThrow(TypeError);
  });
});

describe("principals", () => {
  it("are the same when the proven name is, whatever the certificate or the process", () => {
    const one = identityOfCertificate(
      { ...certificateOf(parsed("DNS:a")), fingerprint256: "1" },
      identifyByName,
    );
    const renewed = identityOfCertificate(
      { ...certificateOf(parsed("DNS:a")), fingerprint256: "2" },
      identifyByName,
    );
    expect(isSamePrincipal(one, renewed)).toBe(true);
    expect(isSamePrincipal(identityOfProcess(1, 1, 10), identityOfProcess(1, 2, 11))).toBe(true);
    expect(isSamePrincipal(undefined, undefined)).toBe(true);
    expect(isSamePrincipal(localIdentity, localIdentity)).toBe(true);
  });

  it("differ by kind and name", () => {
    const all = [
      undefined,
      localIdentity,
      identityOfPsk("a"),
      identityOfPsk("b"),
      named("DNS:a"),
      named("DNS:b"),
      identityOfProcess(1, 1, 1),
      identityOfProcess(2, 1, 1),
      identityOfPsk("process 1"),
      identityOfPsk("local"),
    ];
    for (const [i, one] of all.entries())
      for (const [j, other] of all.entries()) expect(isSamePrincipal(one, other)).toBe(i === j);
  });
});
