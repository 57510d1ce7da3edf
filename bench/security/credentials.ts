import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** How the processes of a workload learn where its certificates are. */
const variable = "CINNABAR_BENCH_CREDENTIALS";

/** A certificate, its key, and the authority that both sides trust. PEM. */
export interface Credentials {
  readonly cert: Buffer;
  readonly key: Buffer;
  readonly ca: Buffer;
}

/** In a process that `withCredentials` has started: what both sides of all contenders prove who they are by. */
export function credentials(): Credentials {
  const folder = process.env[variable];
  if (folder === undefined) throw new Error("only the workload security has certificates");
  const read = (name: string) => readFileSync(join(folder, name));
  return { cert: read("leaf.pem"), key: read("leaf.key"), ca: read("ca.pem") };
}

/** Makes an authority and a certificate (P-256) by the openssl program, for processes that start while `use` runs. */
export async function withCredentials<Result>(use: () => Promise<Result>): Promise<Result> {
  const folder = mkdtempSync(join(tmpdir(), "cinnabar-bench-"));
  const openssl = (...args: string[]) =>
    execFileSync("openssl", args, { cwd: folder, stdio: ["ignore", "pipe", "pipe"] });
  const key = (file: string) => openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", file);
  try {
    key("ca.key");
    const days = ["-days", "2"];
    openssl(
      "req",
      "-x509",
      "-new",
      "-key",
      "ca.key",
      "-subj",
      "/CN=bench authority",
      ...days,
      "-out",
      "ca.pem",
    );
    key("leaf.key");
    openssl("req", "-new", "-key", "leaf.key", "-subj", "/CN=bench", "-out", "leaf.csr");
    const names = "subjectAltName=IP:127.0.0.1,DNS:localhost\nextendedKeyUsage=serverAuth,clientAuth\n";
    writeFileSync(join(folder, "extensions"), names);
    const signed = [
      "-CA",
      "ca.pem",
      "-CAkey",
      "ca.key",
      "-CAcreateserial",
      ...days,
      "-extfile",
      "extensions",
    ];
    openssl("x509", "-req", "-in", "leaf.csr", ...signed, "-out", "leaf.pem");
    process.env[variable] = folder;
    return await use();
  } finally {
    delete process.env[variable];
    rmSync(folder, { recursive: true, force: true });
  }
}
