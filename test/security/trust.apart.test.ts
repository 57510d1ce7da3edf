import { execFileSync } from "node:child_process";
import { X509Certificate } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import type { Credentials } from "../../src/security/credential-options.ts";
import type { Identity } from "../../src/security/identity.ts";
import { Trust } from "../../src/security/trust.ts";
import { Authority } from "./support/authority.ts";
import { endpoint, exchange, tlsCredentials } from "./support/exchange-pair.ts";

let ca: Authority;
let other: Authority;
let far: Authority;

beforeAll(() => {
  ca = Authority.create("ca");
  other = Authority.create("other");
  far = ca.intermediate("first").intermediate("second");
});

afterAll(() => {
  ca.remove();
  other.remove();
});

/** The certificates in a PEM text, in DER, in their order. */
const chainIn = (pem: string): Uint8Array[] =>
  pem.split(/(?=-----BEGIN)/).map((text) => new X509Certificate(text).raw);

const trust = (authorities: readonly string[], lists: readonly string[] = []) =>
  new Trust(authorities.map(Buffer.from), lists.map(Buffer.from));

const untrusted = "of an authority that is not trusted any more";

describe("a later reading of authorities and lists", () => {
  it("judges a chain by whether it leads to an authority that has signed itself", () => {
    const leaf = chainIn(ca.issue("near", { names: "DNS:near.example" }).cert);
    expect(trust([ca.cert]).faultOf(leaf)).toBe("");
    expect(trust([other.cert, ca.cert]).faultOf(leaf)).toBe("");
    expect(trust([`${other.cert}${ca.cert}`]).faultOf(leaf)).toBe("");
    expect(trust([other.cert]).faultOf(leaf)).toContain(untrusted);

    const chain = chainIn(far.issue("far", { names: "DNS:far.example" }).cert);
    expect(chain).toHaveLength(3);
    expect(trust([ca.cert]).faultOf(chain)).toBe("");
    expect(trust([other.cert]).faultOf(chain)).toContain(untrusted);
    expect(trust([ca.cert]).faultOf(chain.slice(0, 2))).toContain(untrusted);
    // Those that the peer has not shown may be trusted themselves, and no authority in the middle is an end.
    const above = [ca.certificateOf("first"), ca.certificateOf("second")];
    expect(trust([ca.cert, ...above]).faultOf(chain.slice(0, 1))).toBe("");
    expect(trust(above).faultOf(chain)).toContain(untrusted);
  });

  it("says when a chain was cut by Node, and judges it by the authorities in the middle where it has them", () => {
    const shown = far.issue("cut", { names: "DNS:cut.example" });
    const [leaf] = chainIn(shown.cert) as [Uint8Array];
    const identity = { kind: "certificate", name: "cut.example" } as Identity;
    const proof = { identity, chain: [leaf] };
    const pair = ca.issue("server", { names: "DNS:node-1.example" });
    let authorities = [ca.cert];
    const accepting = endpoint({
      ...tlsCredentials(pair, ca.cert),
      ca: () => authorities.map((cert) => Buffer.from(cert)),
    } as Credentials);
    accepting.reload();
    expect(accepting.faultOf(proof)).toContain("put them into security.tls.ca");
    expect(accepting.faultOf({ identity, chain: chainIn(shown.cert) })).toBe("");
    authorities = [ca.cert, ca.certificateOf("first"), ca.certificateOf("second")];
    accepting.reload();
    expect(accepting.faultOf(proof)).toBe("");
    authorities = [other.cert];
    accepting.reload();
    expect(accepting.faultOf(proof)).toContain(untrusted);
  });

  it("refuses an authority of the same name with another key", () => {
    const leaf = chainIn(ca.issue("named", { names: "DNS:near.example" }).cert);
    const namesake = Authority.create("ca");
    onTestFinished(() => namesake.remove());
    expect(trust([namesake.cert]).faultOf(leaf)).toContain(untrusted);
  });

  it("refuses what the authority has revoked, and what another has is no matter", () => {
    const authority = Authority.create("revoking");
    onTestFinished(() => authority.remove());
    const names = ["a", "b", "c"].map((name) => `${name}.example`);
    const leaves = names.map((name) => chainIn(authority.issue(name, { names: `DNS:${name}` }).cert));
    const empty = authority.crl;
    for (const leaf of leaves) expect(trust([authority.cert], [empty]).faultOf(leaf)).toBe("");
    authority.revoke("b.example");
    authority.revoke("c.example");
    const list = authority.crl;
    const verdicts = (lists: readonly string[]) =>
      leaves.map((leaf) => trust([authority.cert], lists).faultOf(leaf));
    const revoked = ["", "the certificate is revoked", "the certificate is revoked"];
    expect(verdicts([list])).toEqual(revoked);
    expect(verdicts([other.crl, list])).toEqual(revoked);
    expect(verdicts([`${other.crl}${list}`])).toEqual(revoked);
    // The same serial numbers, of another authority.
    for (const name of names) other.issue(name, { names: `DNS:${name}` });
    for (const name of names) other.revoke(name);
    expect(verdicts([other.crl])).toEqual(["", "", ""]);
  });

  it("refuses all that stands below a revoked authority", () => {
    const root = Authority.create("root");
    onTestFinished(() => root.remove());
    const chain = chainIn(root.intermediate("middle").issue("leaf", { names: "DNS:leaf.example" }).cert);
    root.revoke("middle");
    expect(trust([root.cert], [root.crl]).faultOf(chain)).toBe("the certificate of its authority is revoked");
  });

  it("reads the lists of `cinnabar keys`", () => {
    const folder = mkdtempSync(join(tmpdir(), "cinnabar-trust-"));
    onTestFinished(() => rmSync(folder, { recursive: true }));
    const cli = fileURLToPath(new URL("../../dist/cli/bin/cinnabar.js", import.meta.url));
    const keys = (...args: readonly string[]) =>
      execFileSync(process.execPath, [cli, "keys", ...args, "--dir", folder], { stdio: "pipe" });
    keys("init");
    for (const name of ["one", "two"]) keys("issue", name, "--dns", `${name}.example`);
    keys("revoke", "two");
    const read = (file: string) => readFileSync(join(folder, file), "latin1");
    const judged = trust([read("ca.pem")], [read("crl.pem")]);
    expect(judged.faultOf(chainIn(read("one.pem")))).toBe("");
    expect(judged.faultOf(chainIn(read("two.pem")))).toBe("the certificate is revoked");
  });

  it("says of lists that are cut off that they are", () => {
    const der = Buffer.from(ca.crl.replaceAll(/-----.*-----|\n/g, ""), "base64");
    for (let bytes = 0; bytes < 40; bytes++) {
      const text = der.subarray(0, bytes).toString("base64");
      const pem = `-----BEGIN X509 CRL-----\n${text}\n-----END X509 CRL-----\n`;
      expect(() => trust([ca.cert], [pem])).toThrow(TypeError);
    }
  });

  it("judges handshakes, too, that have begun before it", async () => {
    let lists = ca.crl;
    const pair = ca.issue("judge", { names: "DNS:node-1.example" });
    const accepting = endpoint({
      ...tlsCredentials(pair, ca.cert),
      crl: () => [Buffer.from(lists)],
    } as never);
    const client = tlsCredentials(ca.issue("late", { names: "DNS:late.example" }), ca.cert);
    const onPath = (flight: Buffer, index: number) => {
      if (index === 1) {
        ca.revoke("late");
        lists = ca.crl;
        accepting.reload();
      }
      return [flight];
    };
    const { acceptor, close } = await exchange(endpoint(client), accepting, { onPath });
    close();
    expect(acceptor).toMatchObject({ identity: undefined, refused: "the certificate is revoked" });
  });
});
