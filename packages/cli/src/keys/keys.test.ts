import { spawnSync } from "node:child_process";
import { X509Certificate } from "node:crypto";
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { connect, createServer } from "node:tls";
import { describe, expect, it, onTestFinished } from "vitest";
import { UsageError } from "../command.ts";
import { keys } from "../commands/keys.ts";
import { Terminal } from "../terminal.ts";

/** `cinnabar keys` in a folder of its own. */
function inFolder() {
  const dir = mkdtempSync(join(tmpdir(), "cinnabar-keys-"));
  onTestFinished(() => rmSync(dir, { recursive: true }));
  const run = (...args: readonly string[]) => {
    const printed: string[] = [];
    const complained: string[] = [];
    const status = keys.run(
      [...args, "--dir", dir],
      new Terminal({
        columns: Number.POSITIVE_INFINITY,
        print: (text) => void printed.push(text),
        complain: (text) => void complained.push(text),
        paint: (_, text) => text,
      }),
    );
    return { status, printed: printed.join("\n"), complained: complained.join("\n") };
  };
  const at = (file: string) => join(dir, file);
  const read = (file: string) => readFileSync(at(file));
  const openssl = (...args: readonly string[]) => {
    const { status, stdout, stderr } = spawnSync("openssl", args, { encoding: "utf8", cwd: dir });
    return { ok: status === 0, text: stdout + stderr };
  };
  return { dir, run, at, read, openssl };
}

function withNodes() {
  const folder = inFolder();
  expect(folder.run("init")).toMatchObject({ status: 0, complained: "" });
  const names = ["--dns", "one.example", "--ip", "127.0.0.1", "--ip", "::1", "--uri", "spiffe://c/one"];
  expect(folder.run("issue", "one", ...names).status).toBe(0);
  expect(folder.run("issue", "two", "--dns", "two.example").status).toBe(0);
  return folder;
}

/** Whether `client` and `server` agree by mutual TLS, or why not. */
function handshake(
  { read }: ReturnType<typeof inFolder>,
  server: string,
  client: string,
  crl?: Buffer,
): Promise<string> {
  return new Promise((resolve) => {
    const listening = createServer({
      cert: read(`${server}.pem`),
      key: read(`${server}.key`),
      ca: read("ca.pem"),
      ...(crl && { crl }),
      requestCert: true,
      minVersion: "TLSv1.3",
    });
    const end = (text: string) => {
      listening.close();
      socket?.destroy();
      resolve(text);
    };
    let socket: ReturnType<typeof connect> | undefined;
    listening.on("tlsClientError", (error, peer) => end(String(peer.authorizationError ?? error.message)));
    listening.on("secureConnection", (peer) => {
      peer.on("error", () => {});
      end(`${peer.authorized}`);
    });
    listening.listen(0, "127.0.0.1", () => {
      const { port } = listening.address() as AddressInfo;
      const secrets = { cert: read(`${client}.pem`), key: read(`${client}.key`), ca: read("ca.pem") };
      socket = connect({ port, host: "127.0.0.1", ...secrets, servername: `${server}.example` });
      socket.on("error", (error: NodeJS.ErrnoException) => {
        if (error.code?.startsWith("ERR_TLS") === true) end(error.code);
      });
    });
  });
}

describe("cinnabar keys", () => {
  it("makes what OpenSSL takes in its strictest mode", () => {
    const { openssl } = withNodes();
    const strict = ["verify", "-x509_strict", "-CAfile", "ca.pem"];
    for (const purpose of ["sslserver", "sslclient"])
      expect(openssl(...strict, "-purpose", purpose, "one.pem", "two.pem")).toEqual({
        ok: true,
        text: "one.pem: OK\ntwo.pem: OK\n",
      });
    expect(openssl(...strict, "ca.pem").ok).toBe(true);
    expect(openssl(...strict, "-verify_hostname", "one.example", "one.pem").ok).toBe(true);
    expect(openssl(...strict, "-verify_ip", "::1", "one.pem").ok).toBe(true);
    expect(openssl(...strict, "-verify_ip", "::2", "one.pem").ok).toBe(false);
    // A leaf signs nothing.
    expect(openssl("verify", "-CAfile", "one.pem", "-partial_chain", "two.pem").ok).toBe(false);
    expect(openssl("x509", "-in", "ca.pem", "-noout", "-text").text).toMatch(
      /CA:TRUE, pathlen:0[\s\S]*Certificate Sign, CRL Sign/,
    );
  });

  it("makes names that Node reads, in every form of an address", () => {
    const { run, read } = withNodes();
    const { subjectAltName } = new X509Certificate(read("one.pem"));
    expect(subjectAltName).toBe(
      "URI:spiffe://c/one, DNS:one.example, IP Address:127.0.0.1, IP Address:0:0:0:0:0:0:0:1",
    );
    const ips = ["fe80::1:0:2", "2001:db8:1:2:3:4:5:6", "::", "1::", "::ffff:10.0.0.7"];
    run("issue", "three", "--dns", "*.c.example", ...ips.flatMap((ip) => ["--ip", ip]));
    const certificate = new X509Certificate(read("three.pem"));
    for (const ip of ips) expect(certificate.checkIP(ip), ip).toBe(ip);
    expect(certificate.checkHost("a.c.example")).toBe("*.c.example");
  });

  it("makes certificates that two sides of TLS 1.3 take from each other", async () => {
    const folder = withNodes();
    expect(await handshake(folder, "one", "two")).toBe("true");
    expect(await handshake(folder, "two", "one")).toBe("true");
  });

  it("makes revocation lists that OpenSSL and Node take, and that keep what was revoked before", async () => {
    const folder = withNodes();
    const { run, read, openssl } = folder;
    run("issue", "three", "--uri", "spiffe://c/three");
    expect(run("revoke").status).toBe(0);
    expect(await handshake(folder, "one", "two", read("crl.pem"))).toBe("true");
    expect(run("revoke", "two").status).toBe(0);
    expect(run("revoke", "three", "three").status).toBe(0);
    expect(run("revoke", "three").status).toBe(0);
    const text = openssl("crl", "-in", "crl.pem", "-noout", "-text", "-CAfile", "ca.pem").text;
    expect(text).toContain("verify OK");
    expect(text.match(/Serial Number: /g)).toHaveLength(2);
    expect(text).toMatch(/X509v3 CRL Number: \s*4/);
    expect(read("crl.pem").toString()).toMatch(/^-----BEGIN X509 CRL-----/);
    expect(await handshake(folder, "one", "two", read("crl.pem"))).toBe("CERT_REVOKED");
    const check = (file: string) =>
      openssl("verify", "-crl_check", "-CAfile", "ca.pem", "-CRLfile", "crl.pem", file).ok;
    expect(["one.pem", "two.pem", "three.pem"].map(check)).toEqual([true, false, false]);
  });

  it("keeps keys to their owner, and overwrites nothing", () => {
    const { dir, run, at, read } = withNodes();
    expect(run("psk", "pair").printed).toBe(at("pair.psk"));
    for (const file of ["ca.key", "one.key", "pair.psk"]) expect(statSync(at(file)).mode & 0o777).toBe(0o600);
    expect(read("pair.psk")).toHaveLength(32);
    const before = readdirSync(dir).map((file) => read(file).toString("hex"));
    for (const again of [["init"], ["issue", "one", "--dns", "one.example"], ["psk", "pair"]])
      expect(run(...again)).toMatchObject({
        status: 1,
        complained: expect.stringContaining("is there already, and is not overwritten"),
      });
    // Half of a pair exists: the command does not write the other half.
    rmSync(at("one.key"));
    expect(run("issue", "one", "--dns", "one.example").status).toBe(1);
    expect(readdirSync(dir)).not.toContain("one.key");
    writeFileSync(at("one.key"), "");
    expect(before).toHaveLength(readdirSync(dir).length);
  });

  it("shows what there is, and warns of what ends", () => {
    const { run } = withNodes();
    run("issue", "soon", "--dns", "soon.example", "--days", "10");
    run("revoke", "two");
    const all = run("show");
    expect(all).toMatchObject({ status: 0, complained: "" });
    const lines = all.printed.split("\n").map((line) => line.replace(/\d{4}-\d\d-\d\d/, "DAY"));
    expect(lines.map((line) => line.replaceAll(/ +/g, " "))).toEqual([
      "FILE ENDS STATE NAMES",
      "ca.pem DAY CN=Cinnabar authority",
      expect.stringMatching(/^one.pem DAY URI:spiffe:\/\/c\/one, DNS:one.example/),
      "soon.pem DAY in 9 days DNS:soon.example",
      "two.pem DAY revoked DNS:two.example",
    ]);
    expect(run("show", "--within", "5").status).toBe(0);
    expect(run("show", "--within", "20")).toMatchObject({
      status: 1,
      complained: "cinnabar keys show: soon.pem has ended, or ends within 20 days",
    });
  });

  it.each([
    [["issue", "one"], "give a --dns or a --uri"],
    [["issue", "one", "--ip", "10.0.0.1"], "give a --dns or a --uri"],
    [["issue", "one", "--dns", "a..b"], '"a..b" is no DNS name'],
    [["issue", "one", "--dns", "10.0.0.1"], '"10.0.0.1" is no DNS name'],
    [["issue", "one", "--ip", "10.0.0"], '"10.0.0" is no IP address'],
    [["issue", "one", "--uri", "one"], '"one" is no URI'],
    [["issue", "one", "--uri", "spiffe://c/a, DNS:root"], "is no URI"],
    [["issue", "--dns", "a.example"], "issue needs one NAME"],
    [["issue", "a", "b", "--dns", "a.example"], "issue needs one NAME"],
    [["init", "x"], 'init: unexpected argument "x"'],
    [["init", "--days", "0"], '--days must be a number of days from 1 to 36500, it is "0"'],
    [["init", "--dns", "a.example"], "init has no option --dns"],
    [["init", "--name", "a\nb"], "the name of an authority has 1 to 64"],
    [["inti"], 'expected one of init, issue, revoke, psk, show, not "inti"'],
    [[], "expected one of init, issue, revoke, psk, show"],
    [["show", "--wihtin", "3"], "unknown option '--wihtin'"],
  ])("refuses %j", (args, text) => {
    const { run, dir } = inFolder();
    expect(() => run(...args)).toThrow(UsageError);
    expect(() => run(...args)).toThrow(text);
    expect(readdirSync(dir)).toEqual([]);
  });

  it("says what is missing or wrong in the folder", () => {
    const { run, at, dir } = inFolder();
    expect(run("issue", "one", "--dns", "a.example")).toMatchObject({
      status: 1,
      complained: `cinnabar keys issue: ${dir} has no authority: \`cinnabar keys init\` makes one`,
    });
    run("init", "--days", "10");
    expect(run("issue", "one", "--dns", "a.example").complained).toContain("before the certificate would");
    expect(run("revoke", "one").complained).toContain(`there is no ${at("one.pem")}`);
    expect(run("issue", "../one", "--dns", "a.example").complained).toContain("is no name for files");
    expect(run("psk", "ca").complained).toContain("is no name for files");
    writeFileSync(at("junk.pem"), "junk");
    expect(run("revoke", "junk").complained).toContain("cannot be read as a certificate");
    const other = withNodes();
    writeFileSync(at("other.pem"), other.read("one.pem"));
    expect(run("revoke", "other").complained).toContain("was not issued by");
    writeFileSync(at("ca.key"), other.read("ca.key"));
    expect(run("revoke").complained).toContain("is not the key of");
    writeFileSync(at("revocations.json"), "{");
    expect(run("show").complained).toContain(`${at("revocations.json")} cannot be read`);
  });
});
