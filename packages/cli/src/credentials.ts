import { existsSync, readFileSync } from "node:fs";
import { basename, dirname, extname, join } from "node:path";
import type { SecurityOptions } from "cinnabar/standard";
import { UsageError } from "./command.ts";
import { CommandError } from "./command-error.ts";

/** A value from the user, and its source: the option `--cert`, or the variable `CINNABAR_CERT`. */
export interface Setting {
  readonly value: string;
  readonly source: string;
}

/** The names of the options for this process's identity and for the authorities that it trusts. */
const certificateOptions = ["cert", "key", "ca", "crl"] as const;
const keyOptions = ["psk", "identity"] as const;

/** Values of options, as `parseArgs` gives them. */
export type CredentialValues = {
  readonly [name in (typeof certificateOptions)[number] | (typeof keyOptions)[number]]?: string | undefined;
};

/** What the environment says of an option of the connection. An empty variable says nothing. */
export function variable(option: string): Setting | undefined {
  const source = `CINNABAR_${option.toUpperCase()}`;
  const value = process.env[source];
  return value === undefined || value === "" ? undefined : { value, source };
}

/**
 * What to show to servers, by the options of the command, or else by variables. An option for a certificate leaves the
 * variables for a shared key out of account, and the reverse.
 *
 * @throws UsageError for settings that do not fit together, CommandError for files that cannot be read.
 */
export function securityOf(values: CredentialValues): SecurityOptions | undefined {
  const isGiven = (names: readonly (keyof CredentialValues)[]) =>
    names.some((name) => values[name] !== undefined);
  const settingOf = (name: keyof CredentialValues, mayBeVariable: boolean): Setting | undefined => {
    const value = values[name];
    if (value !== undefined) return { value, source: `--${name}` };
    return mayBeVariable ? variable(name) : undefined;
  };
  const takesKey = !isGiven(certificateOptions);
  const takesCertificate = !isGiven(keyOptions);
  const psk = settingOf("psk", takesKey);
  const identity = settingOf("identity", takesKey);
  const cert = settingOf("cert", takesCertificate);
  const files: CertificateFiles = {
    cert,
    // The key of another certificate would be wrong.
    key: settingOf("key", takesCertificate && values.cert === undefined),
    ca: settingOf("ca", takesCertificate),
    crl: settingOf("crl", takesCertificate),
  };
  if (psk !== undefined) {
    const other = Object.values(files).find((file) => file !== undefined);
    if (other !== undefined)
      throw new UsageError(`${psk.source} and ${other.source} exclude each other: give one of them`);
    const name = identity?.value ?? basename(psk.value, ".psk");
    return { psk: { identity: name, key: read(psk) } };
  }
  if (identity !== undefined)
    throw new UsageError(`${identity.source} is the name of a shared key: give --psk as well`);
  const own = certificateOf("--cert", files);
  return own && { tls: { ...own, ...authorityOf(files) } };
}

/** The files that settings name. */
export interface CertificateFiles {
  readonly cert: Setting | undefined;
  readonly key: Setting | undefined;
  readonly ca: Setting | undefined;
  readonly crl: Setting | undefined;
}

/**
 * The certificate and its key. Undefined without a certificate. `option`: the one that names the certificate.
 *
 * @throws UsageError for other files without a certificate, CommandError for files that cannot be read.
 */
export function certificateOf(option: string, { cert, key, ca, crl }: CertificateFiles) {
  if (cert !== undefined) {
    const stem = cert.value.slice(0, cert.value.length - extname(cert.value).length);
    const keyFile = key ?? { value: `${stem}.key`, source: `the key of ${cert.source}` };
    return { cert: read(cert), key: read(keyFile) };
  }
  const stray = key ?? ca ?? crl;
  if (stray !== undefined)
    throw new UsageError(`${stray.source} belongs to a certificate: give ${option} as well`);
  return undefined;
}

/**
 * The authority to trust, by default that beside the certificate, and its list.
 *
 * @throws CommandError for files that cannot be read.
 */
export function authorityOf({ cert, ca, crl }: CertificateFiles) {
  const beside = { value: join(dirname(cert?.value ?? ""), "ca.pem"), source: "the authority to trust" };
  return { ca: read(ca ?? beside), ...(crl === undefined ? {} : { crl: read(crl) }) };
}

function read({ value: file, source }: Setting): Uint8Array {
  if (!existsSync(file)) throw new CommandError(`${source}: there is no file ${file}`);
  try {
    return readFileSync(file);
  } catch (error) {
    throw new CommandError(`${source}: ${(error as Error).message}`);
  }
}
