import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** A certificate, as PEM with the intermediate ones behind it, and its key. */
export interface KeyPair {
  readonly cert: string;
  readonly key: string;
}

export interface LeafOptions {
  /** As OpenSSL writes it: `DNS:a.example,IP:127.0.0.1,URI:spiffe://c/a`. Undefined: no subjectAltName. */
  readonly names?: string;
  readonly usage?: string;
  /** The first and the last moment of validity, as `20200101000000Z`. Default: around today. */
  readonly from?: string;
  readonly to?: string;
  /** Whether it may sign certificates itself. */
  readonly authority?: boolean;
  readonly algorithm?: "ec" | "rsa" | "ed25519";
}

/** A certificate authority that the `openssl` program makes in a directory of its own, and what it issues. */
export class Authority {
  readonly #directory: string;
  readonly #name: string;
  readonly #chain: string;

  private constructor(directory: string, name: string, chain: string) {
    this.#directory = directory;
    this.#name = name;
    this.#chain = chain;
    const config = [
      "[ca]",
      "default_ca=d",
      "[d]",
      `database=${name}.index`,
      `serial=${name}.serial`,
      `crlnumber=${name}.number`,
      "new_certs_dir=.",
      `certificate=${name}.crt`,
      `private_key=${name}.key`,
      "default_md=sha256",
      "policy=p",
      "default_crl_days=30",
      "unique_subject=no",
      "[p]",
      "commonName=supplied",
    ];
    this.#write(`${name}.cnf`, config.join("\n"));
    this.#write(`${name}.index`, "");
    this.#write(`${name}.serial`, "01");
    this.#write(`${name}.number`, "01");
  }

  static create(name: string): Authority {
    const directory = mkdtempSync(join(tmpdir(), "cinnabar-authority-"));
    const curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
    const uses = ["-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=keyCertSign,cRLSign"];
    const files = ["-keyout", `${name}.key`, "-out", `${name}.crt`];
    run(directory, "req", "-x509", ...curve, ...files, "-days", "30", "-subj", `/CN=${name}`, ...uses);
    return new Authority(directory, name, "");
  }

  get cert(): string {
    return this.#read(`${this.#name}.crt`);
  }

  /** The list of what it has revoked. */
  get crl(): string {
    run(this.#directory, "ca", "-config", `${this.#name}.cnf`, "-gencrl", "-out", `${this.#name}.crl`);
    return this.#read(`${this.#name}.crl`);
  }

  issue(name: string, options: LeafOptions = {}): KeyPair {
    const { names, usage = "serverAuth,clientAuth", algorithm = "ec", authority = false } = options;
    const make = {
      ec: ["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"],
      rsa: ["genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"],
      ed25519: ["genpkey", "-algorithm", "ed25519"],
    }[algorithm];
    run(this.#directory, ...make, "-out", `${name}.key`);
    run(this.#directory, "req", "-new", "-key", `${name}.key`, "-subj", `/CN=${name}`, "-out", `${name}.csr`);
    const extensions = authority
      ? ["basicConstraints=critical,CA:TRUE", "keyUsage=keyCertSign,cRLSign"]
      : ["basicConstraints=CA:FALSE", "keyUsage=digitalSignature", `extendedKeyUsage=${usage}`];
    if (names !== undefined) extensions.push(`subjectAltName=${names}`);
    this.#write(`${name}.ext`, extensions.join("\n"));
    const { from = stamp(-1), to = stamp(20) } = options;
    const files = ["-in", `${name}.csr`, "-extfile", `${name}.ext`, "-out", `${name}.crt`];
    const time = ["-startdate", from, "-enddate", to];
    run(this.#directory, "ca", "-batch", "-notext", "-config", `${this.#name}.cnf`, ...files, ...time);
    return { cert: this.#read(`${name}.crt`) + this.#chain, key: this.#read(`${name}.key`) };
  }

  /** Another authority, which this one vouches for. What it issues has its certificate behind it. */
  intermediate(name: string, options: LeafOptions = {}): Authority {
    const { cert } = this.issue(name, { ...options, authority: true });
    return new Authority(this.#directory, name, cert);
  }

  /** What a leaf signs as if it were an authority. */
  asAuthority(name: string): Authority {
    return new Authority(this.#directory, name, this.#read(`${name}.crt`));
  }

  /** The certificate that was issued to this name, alone. */
  certificateOf(name: string): string {
    return this.#read(`${name}.crt`);
  }

  revoke(name: string): void {
    run(this.#directory, "ca", "-config", `${this.#name}.cnf`, "-revoke", `${name}.crt`);
  }

  remove(): void {
    rmSync(this.#directory, { recursive: true, force: true });
  }

  #write(file: string, text: string): void {
    writeFileSync(join(this.#directory, file), `${text}\n`.replace(/^\n$/, ""));
  }

  #read(file: string): string {
    return readFileSync(join(this.#directory, file), "utf8");
  }
}

/** A moment so many days from now, as `openssl ca` writes it. */
export function stamp(days: number): string {
  return `${new Date(Date.now() + days * 86_400_000).toISOString().replace(/[-:T]/g, "").slice(0, 14)}Z`;
}

function run(directory: string, ...args: readonly string[]): void {
  execFileSync("openssl", args, { cwd: directory, stdio: "pipe" });
}
