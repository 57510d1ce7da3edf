import { createPrivateKey, type KeyObject, randomBytes, X509Certificate } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import {
  issueAuthority,
  issueLeaf,
  type RevokedSerial,
  revocationList,
  type Validity,
} from "./certificate.ts";
import type { Names } from "./names.ts";

/** What went wrong, for the person at the terminal. */
export class KeysError extends Error {
  override readonly name = "KeysError";
}

/** A certificate of the folder. */
export interface FoundCertificate {
  /** Its file, without the folder. */
  readonly file: string;
  readonly certificate: X509Certificate;
  readonly isRevoked: boolean;
}

/** What is kept of the revocations: a list has all of them again. */
interface Revocations {
  /** The number of the last list. Each new list has a higher one. */
  readonly number: number;
  readonly revoked: readonly { readonly serial: string; readonly name: string; readonly at: string }[];
}

const caCert = "ca.pem";
const caKey = "ca.key";
const list = "crl.pem";
const revocations = "revocations.json";
/** Names that the folder itself uses. */
const reserved = new Set(["ca", "crl", "revocations"]);
const namePattern = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/;
const privateMode = 0o600;
const publicMode = 0o644;

/** A folder with an authority and what it has issued. It overwrites no key and no certificate. */
export class KeysFolder {
  readonly path: string;

  constructor(path: string) {
    this.path = path;
  }

  /** @throws KeysError when the name cannot be that of a file. */
  static assertName(name: string): void {
    if (namePattern.test(name) && !reserved.has(name)) return;
    throw new KeysError(
      `"${name}" is no name for files: 1 to 64 of A-Z a-z 0-9 . _ -, and not ${[...reserved].join(", ")}`,
    );
  }

  /** Makes the authority. Returns the files that it wrote. */
  createAuthority(name: string, validity: Validity): string[] {
    mkdirSync(this.path, { recursive: true, mode: 0o700 });
    const { cert, key } = issueAuthority(name, validity);
    return this.#writeNew([
      [caKey, key, privateMode],
      [caCert, cert, publicMode],
    ]);
  }

  /** Issues a certificate and its key. Returns the files. */
  issue(name: string, names: Names, validity: Validity): string[] {
    KeysFolder.assertName(name);
    const { certificate, signer } = this.#authority();
    const end = new Date(certificate.validTo);
    if (validity.to > end)
      throw new KeysError(
        `the authority ends on ${day(end)}, before the certificate would: give fewer --days`,
      );
    const { cert, key } = issueLeaf(signer, name, names, validity);
    return this.#writeNew([
      [`${name}.key`, key, privateMode],
      [`${name}.pem`, cert, publicMode],
    ]);
  }

  /** Writes 32 random bytes that two engines share. Returns the file. */
  createSharedKey(name: string): string[] {
    KeysFolder.assertName(name);
    mkdirSync(this.path, { recursive: true, mode: 0o700 });
    return this.#writeNew([[`${name}.psk`, randomBytes(32), privateMode]]);
  }

  /** Revokes certificates, by the names of their files, and writes the list anew. Returns its file. */
  revoke(names: readonly string[], validity: Validity): string[] {
    const { signer, certificate: authority } = this.#authority();
    const { number, revoked } = this.#revocations();
    const added = names.map((name) => {
      KeysFolder.assertName(name);
      const certificate = this.#read(`${name}.pem`);
      if (!certificate.verify(authority.publicKey))
        throw new KeysError(`${this.#at(`${name}.pem`)} was not issued by ${this.#at(caCert)}`);
      return { serial: certificate.serialNumber, name, at: validity.from.toISOString() };
    });
    const all = [...revoked];
    for (const each of added) if (!all.some(({ serial }) => serial === each.serial)) all.push(each);
    const serials: RevokedSerial[] = all.map(({ serial, at }) => ({ serial, at: new Date(at) }));
    const next: Revocations = { number: number + 1, revoked: all };
    const text = revocationList(signer, next.number, serials, validity);
    // First what must not be lost: a list without it would let the revoked in again.
    this.#replace(revocations, `${JSON.stringify(next, undefined, 2)}\n`);
    this.#replace(list, text);
    return [this.#at(list)];
  }

  /** Every certificate of the folder, that of the authority first. */
  certificates(): FoundCertificate[] {
    if (!existsSync(this.path)) throw new KeysError(`there is no folder ${this.path}`);
    const revoked = new Set(this.#revocations().revoked.map(({ serial }) => serial));
    const files = readdirSync(this.path).filter((file) => file.endsWith(".pem") && file !== list);
    return files
      .sort((a, b) => Number(b === caCert) - Number(a === caCert) || a.localeCompare(b))
      .map((file) => {
        const certificate = this.#read(file);
        return { file, certificate, isRevoked: revoked.has(certificate.serialNumber) };
      });
  }

  #authority(): { certificate: X509Certificate; signer: { name: string; key: KeyObject } } {
    if (!existsSync(this.#at(caKey)))
      throw new KeysError(`${this.path} has no authority: \`cinnabar keys init\` makes one`);
    const certificate = this.#read(caCert);
    const key = createPrivateKey(readFileSync(this.#at(caKey)));
    if (!certificate.checkPrivateKey(key))
      throw new KeysError(`${this.#at(caKey)} is not the key of ${this.#at(caCert)}`);
    const name = /^CN=(.*)$/m.exec(certificate.subject)?.[1];
    if (name === undefined) throw new KeysError(`${this.#at(caCert)} has no CN`);
    return { certificate, signer: { name, key } };
  }

  #read(file: string): X509Certificate {
    const path = this.#at(file);
    if (!existsSync(path)) throw new KeysError(`there is no ${path}`);
    try {
      return new X509Certificate(readFileSync(path));
    } catch (error) {
      throw new KeysError(`${path} cannot be read as a certificate: ${(error as Error).message}`);
    }
  }

  #revocations(): Revocations {
    const path = this.#at(revocations);
    if (!existsSync(path)) return { number: 0, revoked: [] };
    try {
      return JSON.parse(readFileSync(path, "utf8"));
    } catch (error) {
      throw new KeysError(`${path} cannot be read: ${(error as Error).message}`);
    }
  }

  #at(file: string): string {
    return join(this.path, file);
  }

  /** Writes all of the files, or no file. */
  #writeNew(files: readonly (readonly [string, string | Uint8Array, number])[]): string[] {
    const there = files.map(([file]) => this.#at(file)).find((path) => existsSync(path));
    if (there !== undefined) throw new KeysError(`${there} is there already, and is not overwritten`);
    const written: string[] = [];
    try {
      for (const [file, contents, mode] of files) {
        writeFileSync(this.#at(file), contents, { mode, flag: "wx" });
        written.push(this.#at(file));
      }
    } catch (error) {
      for (const path of written) rmSync(path, { force: true });
      throw new KeysError((error as Error).message);
    }
    return written;
  }

  /** In one step: a reader sees the former file or this one. */
  #replace(file: string, text: string): void {
    const path = this.#at(file);
    writeFileSync(`${path}.new`, text, { mode: publicMode });
    renameSync(`${path}.new`, path);
  }
}

export function day(date: Date): string {
  return date.toISOString().slice(0, 10);
}
