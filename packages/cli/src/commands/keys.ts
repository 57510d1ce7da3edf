import { argumentsOf } from "../arguments.ts";
import { type Command, UsageError } from "../command.ts";
import type { Validity } from "../keys/certificate.ts";
import { day, type FoundCertificate, KeysError, KeysFolder } from "../keys/folder.ts";
import { assertNames } from "../keys/names.ts";
import { table } from "../table.ts";
import type { Terminal } from "../terminal.ts";

const help = `Usage: cinnabar keys init [--name NAME] [--days N]
       cinnabar keys issue NAME [--dns NAME…] [--ip ADDRESS…] [--uri URI…] [--days N]
       cinnabar keys revoke [NAME…] [--days N]
       cinnabar keys psk NAME
       cinnabar keys show [--within N]

Makes the certificates and keys of engines (docs/guide/security.md). Files are in
one folder. Keys are readable by their owner alone; no key and no certificate is
ever overwritten.

  init    Makes an authority: ca.key and ca.pem. Keep ca.key off the servers.
  issue   Makes NAME.key and NAME.pem, signed by the authority.
  revoke  Makes the revocation list crl.pem anew, with these certificates and all
          revoked before. Without a NAME it is only renewed.
  psk     Makes NAME.psk: 32 random bytes that two engines share.
  show    Lists the certificates, their names and their ends.

  --dir FOLDER  The folder. Default: cinnabar-keys.
  --dns NAME    A DNS name of the engine, as peers connect to it. Repeatable.
  --ip ADDRESS  An address of the engine, as peers connect to it. Repeatable.
  --uri URI     A URI, such as spiffe://cluster.example/node-7. Repeatable. An
                engine takes the name of a peer from its first URI, else from its
                first DNS name.
  --name NAME   The name of the authority. Default: Cinnabar authority.
  --days N      How long it is valid. Default: init 3650, issue 365, revoke 30.
  --within N    Exits with status 1 if a certificate ends within N days.`;

const dayMs = 86_400_000;
/** Clocks of other machines may be behind. */
const clockSkewMs = 5 * 60_000;
/** From then on a certificate that ends soon is shown in red. */
const soonDays = 30;

const options = {
  dir: { type: "string", default: "cinnabar-keys" },
  name: { type: "string" },
  dns: { type: "string", multiple: true },
  ip: { type: "string", multiple: true },
  uri: { type: "string", multiple: true },
  days: { type: "string" },
  within: { type: "string" },
} as const;

type Values = ReturnType<typeof argumentsOf<typeof options>>["values"];

interface Verb {
  /** The options that it has beside `dir`. */
  readonly options: readonly (keyof typeof options)[];
  /** How many names it takes. */
  readonly names: "none" | "one" | "any";
  run(folder: KeysFolder, names: readonly string[], values: Values, terminal: Terminal): number;
}

const verbs: Readonly<Record<string, Verb>> = {
  init: {
    options: ["name", "days"],
    names: "none",
    run: (folder, _, { name = "Cinnabar authority", days }, terminal) => {
      if (!/^[A-Za-z0-9 ._-]{1,64}$/.test(name))
        throw new UsageError("the name of an authority has 1 to 64 of A-Z a-z 0-9 . _ - and spaces");
      return wrote(terminal, folder.createAuthority(name, validity(days, 3650)));
    },
  },
  issue: {
    options: ["dns", "ip", "uri", "days"],
    names: "one",
    run: (folder, [name = ""], { dns = [], ip: ips = [], uri: uris = [], days }, terminal) => {
      assertNames({ dns, ips, uris });
      return wrote(terminal, folder.issue(name, { dns, ips, uris }, validity(days, 365)));
    },
  },
  revoke: {
    options: ["days"],
    names: "any",
    run: (folder, names, { days }, terminal) => wrote(terminal, folder.revoke(names, validity(days, 30))),
  },
  psk: {
    options: [],
    names: "one",
    run: (folder, [name = ""], _, terminal) => wrote(terminal, folder.createSharedKey(name)),
  },
  show: {
    options: ["within"],
    names: "none",
    run: (folder, _, { within }, terminal) => show(folder.certificates(), within, terminal),
  },
};

/** `cinnabar keys`: certificates, revocation lists and shared keys for the option `security`. */
export const keys: Command = {
  help,
  run(args, terminal) {
    const { values, positionals } = argumentsOf(args, options);
    const [name = "", ...names] = positionals;
    const verb = Object.hasOwn(verbs, name) ? verbs[name] : undefined;
    if (verb === undefined)
      throw new UsageError(`expected one of ${Object.keys(verbs).join(", ")}${name && `, not "${name}"`}`);
    for (const option of Object.keys(values) as (keyof typeof options)[])
      if (option !== "dir" && !verb.options.includes(option))
        throw new UsageError(`${name} has no option --${option}`);
    if (verb.names === "none" && names.length > 0)
      throw new UsageError(`${name}: unexpected argument "${names[0]}"`);
    if (verb.names === "one" && names.length !== 1) throw new UsageError(`${name} needs one NAME`);
    try {
      return verb.run(new KeysFolder(values.dir), names, values, terminal);
    } catch (error) {
      if (!(error instanceof KeysError)) throw error;
      terminal.complain(`cinnabar keys ${name}: ${error.message}`);
      return 1;
    }
  },
};

function validity(days: string | undefined, defaultDays: number): Validity {
  const nowMs = Date.now();
  const ms = days === undefined ? defaultDays * dayMs : wholeDays("--days", days, 1) * dayMs;
  return { from: new Date(nowMs - clockSkewMs), to: new Date(nowMs + ms) };
}

function wholeDays(option: string, text: string, least: number): number {
  const days = Number(text);
  if (/^\d{1,5}$/.test(text) && days >= least && days <= 36_500) return days;
  throw new UsageError(`${option} must be a number of days from ${least} to 36500, it is "${text}"`);
}

function wrote(terminal: Terminal, files: readonly string[]): number {
  for (const file of files) terminal.print(file);
  return 0;
}

function show(found: readonly FoundCertificate[], within: string | undefined, terminal: Terminal): number {
  const limitDays = within === undefined ? undefined : wholeDays("--within", within, 0);
  const nowMs = Date.now();
  const endsInDays = ({ certificate }: FoundCertificate) =>
    Math.floor((Date.parse(certificate.validTo) - nowMs) / dayMs);
  const rows = found.map((each) => {
    const { file, certificate, isRevoked } = each;
    const left = endsInDays(each);
    const end = day(new Date(certificate.validTo));
    const state = isRevoked ? "revoked" : left < 0 ? "has ended" : left <= soonDays ? `in ${left} days` : "";
    return [file, end, state, certificate.subjectAltName ?? certificate.subject.replaceAll("\n", ", ")];
  });
  terminal.print(table(terminal, ["FILE", "ENDS", "STATE", "NAMES"], rows));
  const ending = found.filter((each) => !each.isRevoked && endsInDays(each) < (limitDays ?? 0));
  for (const { file } of ending)
    terminal.complain(`cinnabar keys show: ${file} has ended, or ends within ${limitDays ?? 0} days`);
  return limitDays !== undefined && ending.length > 0 ? 1 : 0;
}
