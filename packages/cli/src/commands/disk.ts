import { createHash } from "node:crypto";
import { existsSync, readFileSync, realpathSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { hostname } from "node:os";
import { basename, dirname, join, resolve } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { pathToFileURL } from "node:url";
import type {
  FileDevice,
  FileDeviceOptions,
  NbdServer,
  NbdTlsOptions,
  NvmeAdmittedHost,
  NvmeTarget,
} from "cinnabar-nvme";
import { argumentsOf } from "../arguments.ts";
import { type Command, UsageError } from "../command.ts";
import { CommandError } from "../command-error.ts";
import { untilEnded } from "../connection.ts";
import { CountedDevice, type DeviceCounts, noCounts } from "../counted-device.ts";
import { authorityOf, certificateOf } from "../credentials.ts";
import { shortNumber } from "../inspected.ts";
import { bytes, integer, milliseconds } from "../quantities.ts";
import type { Terminal } from "../terminal.ts";

const help = `Usage: cinnabar disk serve FILE… [--nvme-tcp HOST:PORT…] [--nvme-rdma HOST:PORT…]
       [--nbd PATH|HOST:PORT…] [OPTION…]
       cinnabar disk secret FILE [--tls]

serve: serves files, or block special files, as disks: to hosts of NVMe/TCP and
NVMe/RDMA, such as Linux, and to clients of NBD. Several files are the namespaces
1, 2 and so on of one subsystem of NVMe, and the exports of an NBD server. It goes
on until Ctrl-C or SIGTERM, and flushes the disks then. It prints where it listens, then operations
and bytes in a second, errors and connections: on a terminal in one line that
changes, elsewhere in a line for each interval in which something happened. Needs
the package cinnabar-nvme.

secret: makes FILE with a new secret for a host of NVMe, or with --tls a new key for
TLS. This user alone may read it. It never overwrites a file.

  --nvme-tcp HOST:PORT  Listens for hosts of NVMe/TCP. Their usual port is 4420;
                        0 takes a free one. Repeatable.
  --nvme-rdma HOST:PORT
                        Listens for hosts of NVMe/RDMA, at the address of an RDMA
                        device. Repeatable.
  --nbd PATH|HOST:PORT  Listens for clients of NBD, at a Unix socket that this user
                        alone may open, or at a TCP port. Repeatable.
  --nbd-cert FILE       Clients of NBD must use TLS, with this certificate of the
                        server, as \`cinnabar keys issue\` makes it.
  --nbd-key FILE        Its private key. Default: the certificate's file with .key.
  --nbd-ca FILE|any     The authority whose clients may connect, or any client.
                        Default: ca.pem beside the certificate.
  --nbd-crl FILE        The authority's revocation list. Default: none.
  --allow-host NQN[=FILE]
                        A host of NVMe that may connect, by the name that it gives
                        itself, or any. Repeatable. Default: any, where all
                        addresses are those of loopback. Elsewhere it must be given.
                        With FILE the host must prove the secret in the first line
                        of FILE; by that in a second line the disk proves itself.
  --tls-key NQN=FILE    Hosts of NVMe/TCP must use TLS. This one has the key in the first
                        line of FILE. Repeatable. Without --allow-host these hosts alone
                        may connect.
  --allow-plaintext     Hosts of NVMe/TCP without a --tls-key may connect without TLS.
  --nqn NQN             The name of the disk for hosts of NVMe. Default: made of
                        the names of this machine and of FILE.
  --name NAME           The name of a disk for clients of NBD: the first one for the
                        first FILE, and so on. Default: \`disk\` for a single FILE,
                        else the last part of each path.
  --uuid UUID           The identity of the disk: the same for each path to it, and for
                        no other disk. Default: that in FILE.uuid beside FILE, which
                        is made with a random one. For a single FILE.
  --bytes SIZE          The size, such as 64MiB. A FILE that is missing is made, a
                        shorter one gets longer. Default: the size of each FILE.
  --block SIZE          The smallest unit of reads and writes. Default: 4096.
  --read-only           The disk takes no writes.
  --advertise HOST:PORT The address of NVMe/TCP that the discovery service gives to
                        hosts. Repeatable. Default: the one that they have reached.
  --max-connections N   How many connections each address takes. Each queue of a host
                        is one, and so is each connection of NBD. Default: 256.
  --max-io-queues N     How many queues for reads and writes a host of NVMe may have,
                        beside one for administration. Default: 16.
  --max-bytes-per-second SIZE
                        How much one host may read and write in a second, through each
                        of NVMe and each address of NBD. A host of NBD is an address.
                        Default: no limit.
  --max-ops-per-second N
                        How many operations one host may do in a second. Default: no
                        limit.
  --shared              Other servers have FILE open as well, all with --shared: they
                        are paths to one disk. Otherwise a second one is refused.
  --watch-size          Takes over the size of FILE when it has been made longer, and
                        notifies hosts of NVMe. It looks at each interval.
  --every TIME          The interval, 100ms or longer. Default: 1s.
  --json                Prints one JSON object on one line at the start, for each
                        interval and at the end.`;

const options = {
  "nvme-tcp": { type: "string", multiple: true, default: [] as string[] },
  "nvme-rdma": { type: "string", multiple: true, default: [] as string[] },
  nbd: { type: "string", multiple: true, default: [] as string[] },
  "nbd-cert": { type: "string" },
  "nbd-key": { type: "string" },
  "nbd-ca": { type: "string" },
  "nbd-crl": { type: "string" },
  "allow-host": { type: "string", multiple: true, default: [] as string[] },
  "tls-key": { type: "string", multiple: true, default: [] as string[] },
  "allow-plaintext": { type: "boolean", default: false },
  tls: { type: "boolean", default: false },
  nqn: { type: "string" },
  name: { type: "string", multiple: true, default: [] as string[] },
  uuid: { type: "string" },
  bytes: { type: "string" },
  block: { type: "string" },
  "read-only": { type: "boolean", default: false },
  advertise: { type: "string", multiple: true, default: [] as string[] },
  "max-connections": { type: "string" },
  "max-io-queues": { type: "string" },
  "max-bytes-per-second": { type: "string" },
  "max-ops-per-second": { type: "string" },
  shared: { type: "boolean", default: false },
  "watch-size": { type: "boolean", default: false },
  every: { type: "string", default: "1s" },
  json: { type: "boolean", default: false },
} as const;

type Nvme = typeof import("cinnabar-nvme");
type Values = ReturnType<typeof argumentsOf<typeof options>>["values"];

const shortestMs = 100;

/** `cinnabar disk`: files as disks of others. */
export const disk: Command = {
  help,
  run(args, terminal) {
    const { values, positionals } = argumentsOf(args, options);
    const [verb, ...files] = positionals;
    const [file] = files;
    if ((verb !== "serve" && verb !== "secret") || file === undefined)
      throw new UsageError("expected serve and one FILE or several, or secret and one FILE");
    if (verb === "secret") {
      if (files.length > 1) throw new UsageError("expected secret and one FILE");
      return untilEnded("disk", terminal, () => makeSecretFile(file, values.tls, terminal));
    }
    if (values.tls) throw new UsageError("--tls is for secret: give serve a --tls-key for each host");
    return untilEnded("disk", terminal, async ({ signal }) => {
      const plan = planOf(files, values);
      const nvme = await loadNvme();
      const counts = noCounts();
      const disks: Disk[] = [];
      const served: Served = { targets: [], rdma: [], servers: [] };
      try {
        for (const [index, path] of files.entries()) {
          const opened = await reported(() => nvme.openFileDevice(path, plan.device));
          const name = plan.names[index] as string;
          disks.push({ file: path, name, opened, device: new CountedDevice(opened, counts) });
        }
        await listen(nvme, disks, plan, served);
        const output = new Output(counts, served, values.json, terminal);
        output.serving(disks, plan.nqn);
        while (!signal.aborted) {
          await pause(plan.everyMs, undefined, { signal }).catch(() => {});
          if (signal.aborted) break;
          if (values["watch-size"]) await grow(disks, served, output);
          output.interval();
        }
        output.ended();
      } finally {
        await end(disks, served, terminal);
      }
      return 0;
    });
  },
};

/** A file that is served. */
interface Disk {
  readonly file: string;
  /** For clients of NBD. */
  readonly name: string;
  readonly opened: FileDevice;
  readonly device: CountedDevice;
}

/** Takes over the sizes of files that have been made longer. */
async function grow(disks: readonly Disk[], { targets }: Served, output: Output): Promise<void> {
  for (const { file, opened } of disks) {
    if (!(await reported(() => opened.grow()))) continue;
    for (const target of targets) target.resized();
    output.grown(file, opened.bytes);
  }
}

/** What the arguments ask for. */
interface Plan {
  readonly nvmeTcp: readonly Address[];
  readonly nvmeRdma: readonly Address[];
  readonly nbd: readonly (Address | { readonly path: string })[];
  readonly nbdTls: NbdTlsOptions | undefined;
  /** Each `NQN` or `NQN=FILE`. */
  readonly hosts: readonly string[] | "any";
  readonly nvmeTls: NvmeTls | undefined;
  readonly nqn: string;
  /** The names of the disks for clients of NBD. */
  readonly names: readonly string[];
  /** How each file is opened. */
  readonly device: FileDeviceOptions;
  /** Undefined where each host gets the address that it has reached. */
  readonly advertise: readonly Address[] | undefined;
  /** Undefined where the package's own limit holds. */
  readonly maxConnections: number | undefined;
  readonly maxIoQueues: number | undefined;
  readonly rates: {
    readonly maxBytesPerSecond: number | undefined;
    readonly maxOperationsPerSecond: number | undefined;
  };
  readonly everyMs: number;
}

/** TLS of NVMe/TCP. */
interface NvmeTls {
  /** Files with keys, by the NQNs of their hosts. */
  readonly files: ReadonlyMap<string, string>;
  readonly allowPlaintext: boolean;
}

interface Address {
  readonly host: string;
  readonly port: number;
}

interface Served {
  readonly targets: NvmeTarget[];
  /** Where one of the targets listens for hosts of NVMe/RDMA. */
  readonly rdma: Address[];
  readonly servers: NbdServer[];
}

/** @throws UsageError, or CommandError for files that cannot be read. */
function planOf(files: readonly string[], values: Values): Plan {
  const nvme = (["nvme-tcp", "nvme-rdma", "advertise"] as const).map((option) =>
    values[option].map((text) => {
      const address = addressOf(`--${option}`, text);
      if (address === undefined)
        throw new UsageError(`--${option} must be HOST:PORT, such as 127.0.0.1:4420, it is "${text}"`);
      return address;
    }),
  );
  const [nvmeTcp = [], nvmeRdma = [], advertised = []] = nvme;
  const nvmeDoors = [...nvmeTcp, ...nvmeRdma];
  const nbd = values.nbd.map((text) => addressOf("--nbd", text) ?? { path: text });
  if (values.uuid !== undefined && files.length > 1)
    throw new UsageError("--uuid is for a single FILE: each disk has an identity of its own");
  if (nvmeDoors.length + nbd.length === 0)
    throw new UsageError("give --nvme-tcp, --nvme-rdma or --nbd, or several of them");
  const nbdTls = nbdTlsOf(values);
  const nvmeTls = nvmeTlsOf(values);
  const withKeys = nvmeTls === undefined || nvmeTls.allowPlaintext ? undefined : [...nvmeTls.files.keys()];
  const allowed = values["allow-host"];
  const openDoors = withKeys === undefined ? nvmeDoors : nvmeRdma;
  if (allowed.length === 0 && openDoors.some(({ host }) => !isLoopback(host)))
    throw new UsageError("others reach this address: give --allow-host for each host, or --allow-host any");
  const everyMs = milliseconds("--every", values.every);
  if (everyMs < shortestMs) throw new UsageError(`--every must be at least ${shortestMs}ms`);
  return {
    nvmeTcp,
    nvmeRdma,
    nbd,
    nbdTls,
    hosts: allowed.includes("any") ? "any" : allowed.length > 0 ? allowed : (withKeys ?? "any"),
    nvmeTls,
    nqn: values.nqn ?? nqnOf(files),
    names: namesOf(files, values.name),
    device: {
      isReadOnly: values["read-only"],
      uuid: values.uuid,
      isShared: values.shared,
      bytes: given(values.bytes, (text) => bytes("--bytes", text)),
      blockBytes: given(values.block, (text) => bytes("--block", text)),
    },
    advertise: advertised.length === 0 ? undefined : advertised,
    maxConnections: countOf("--max-connections", values["max-connections"], 2, 65_536),
    maxIoQueues: countOf("--max-io-queues", values["max-io-queues"], 1, 1024),
    rates: {
      maxBytesPerSecond: given(values["max-bytes-per-second"], (text) =>
        bytes("--max-bytes-per-second", text),
      ),
      maxOperationsPerSecond: countOf("--max-ops-per-second", values["max-ops-per-second"], 1, 1_000_000_000),
    },
    everyMs,
  };
}

/** The names of the disks. @throws UsageError for those that are missing or not different */
function namesOf(files: readonly string[], given: readonly string[]): readonly string[] {
  if (given.length > 0 && given.length !== files.length)
    throw new UsageError(
      `give --name once for each FILE: there are ${files.length}, and ${given.length} names`,
    );
  const names =
    given.length > 0 ? given : files.length === 1 ? ["disk"] : files.map((file) => basename(file));
  const twice = names.find((name, index) => names.indexOf(name) < index);
  if (twice !== undefined) throw new UsageError(`two disks are called "${twice}": give each a --name`);
  return names;
}

const countOf = (option: string, text: string | undefined, low: number, high: number) =>
  given(text, (one) => integer(option, one, low, high));

const given = <T>(text: string | undefined, parse: (text: string) => T): T | undefined =>
  text === undefined ? undefined : parse(text);

/** @throws UsageError, or CommandError for files that cannot be read. */
function nbdTlsOf(values: Values): NbdTlsOptions | undefined {
  const [cert, key, ca, crl] = [values["nbd-cert"], values["nbd-key"], values["nbd-ca"], values["nbd-crl"]];
  if (cert !== undefined && values.nbd.length === 0) throw new UsageError("--nbd-cert needs --nbd");
  if (crl !== undefined && ca === "any") throw new UsageError("--nbd-crl has no effect with --nbd-ca any");
  const settingOf = (value: string | undefined, source: string) =>
    value === undefined ? undefined : { value, source };
  const files = {
    cert: settingOf(cert, "--nbd-cert"),
    key: settingOf(key, "--nbd-key"),
    ca: settingOf(ca, "--nbd-ca"),
    crl: settingOf(crl, "--nbd-crl"),
  };
  const own = certificateOf("--nbd-cert", files);
  return own && ca !== "any" ? { ...own, ...authorityOf(files) } : own;
}

/** @throws UsageError */
function nvmeTlsOf(values: Values): NvmeTls | undefined {
  const [given, allowPlaintext] = [values["tls-key"], values["allow-plaintext"]];
  if (given.length === 0) {
    if (allowPlaintext) throw new UsageError("--allow-plaintext needs --tls-key");
    return undefined;
  }
  if (values["nvme-tcp"].length === 0) throw new UsageError("--tls-key needs --nvme-tcp");
  const files = new Map<string, string>();
  for (const text of given) {
    const [, nqn, file] = /^([^=]+)=(.+)$/.exec(text) ?? [];
    if (nqn === undefined || file === undefined)
      throw new UsageError("--tls-key must be NQN=FILE, the name of a host and the file with its key");
    if (files.has(nqn)) throw new UsageError(`two of --tls-key are for ${nqn}`);
    files.set(nqn, file);
  }
  return { files, allowPlaintext };
}

/** @throws CommandError for a file that cannot be read */
function tlsKeyIn(file: string): string {
  try {
    return readFileSync(file, "utf8").split("\n", 1)[0]?.trim() ?? "";
  } catch (error) {
    throw new CommandError(`--tls-key: ${(error as Error).message}`, 1, error);
  }
}

/** A host in `NQN` or `NQN=FILE`. @throws CommandError */
function hostOf(text: string): string | NvmeAdmittedHost {
  const end = text.indexOf("=");
  if (end < 0) return text;
  const nqn = text.slice(0, end);
  try {
    const lines = readFileSync(text.slice(end + 1), "utf8")
      .split("\n")
      .map((line) => line.trim());
    const [secret = "", controllerSecret] = lines.filter((line) => line !== "");
    return { nqn, secret, ...(controllerSecret === undefined ? {} : { controllerSecret }) };
  } catch (error) {
    throw new CommandError(`--allow-host: ${(error as Error).message}`, 1, error);
  }
}

async function makeSecretFile(file: string, isForTls: boolean, terminal: Terminal): Promise<number> {
  const nvme = await loadNvme();
  try {
    writeFileSync(file, `${isForTls ? nvme.makeTlsKey() : nvme.makeSecret()}\n`, { mode: 0o600, flag: "wx" });
  } catch (error) {
    throw new CommandError((error as Error).message, 1, error);
  }
  terminal.print(`wrote ${file}`);
  return 0;
}

/**
 * The address in `HOST:PORT`, with an IPv6 address in brackets. Undefined for a text of another form, which is a path.
 */
function addressOf(option: string, text: string): Address | undefined {
  const [, inBrackets, plain, digits = ""] = /^(?:\[([^\]/]+)\]|([^[\]:/]+)):(\d+)$/.exec(text) ?? [];
  const host = inBrackets ?? plain;
  if (host === undefined) return undefined;
  const port = Number(digits);
  if (port > 65_535) throw new UsageError(`${option}: a port is from 0 to 65535, it is ${digits}`);
  return { host, port };
}

const isLoopback = (host: string): boolean => /^(localhost|127(\.\d+){3}|::1)$/.test(host);

/** The same for these files each time, so that hosts know the disks again. The form with a UUID needs no domain. */
function nqnOf(files: readonly string[]): string {
  const hash = createHash("sha256")
    .update([hostname(), ...files.map(realPathOf)].join(" "))
    .digest();
  hash[6] = ((hash[6] ?? 0) & 0x0f) | 0x80;
  hash[8] = ((hash[8] ?? 0) & 0x3f) | 0x80;
  const uuid = hash.toString("hex", 0, 16).replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
  return `nqn.2014-08.org.nvmexpress:uuid:${uuid}`;
}

/** The file may be one that is to be made. */
function realPathOf(file: string): string {
  const path = resolve(file);
  return existsSync(dirname(path)) ? join(realpathSync(dirname(path)), basename(path)) : path;
}

/** The package is not part of Cinnabar's own: it stands beside it, or in the folder where the command runs. */
async function loadNvme(): Promise<Nvme> {
  try {
    return await import("cinnabar-nvme");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ERR_MODULE_NOT_FOUND") throw error;
  }
  let file: string;
  try {
    file = createRequire(join(process.cwd(), "package.json")).resolve("cinnabar-nvme");
  } catch (error) {
    throw new CommandError(
      "the package cinnabar-nvme is missing: install it beside cinnabar, in the same version",
      1,
      error,
    );
  }
  return (await import(pathToFileURL(file).href)) as Nvme;
}

async function listen(nvme: Nvme, disks: readonly Disk[], plan: Plan, served: Served): Promise<void> {
  const { nqn, advertise, maxConnections, maxIoQueues, rates } = plan;
  const hosts = plan.hosts === "any" ? plan.hosts : plan.hosts.map(hostOf);
  const subsystems = [{ nqn, namespaces: disks.map(({ device }) => device), hosts }];
  const nvmeOptions = { subsystems, advertise, maxConnections, maxIoQueues, ...rates };
  const nvmeTls = plan.nvmeTls && {
    keys: Object.fromEntries([...plan.nvmeTls.files].map(([host, file]) => [host, tlsKeyIn(file)])),
    allowPlaintext: plan.nvmeTls.allowPlaintext,
  };
  for (const address of plan.nvmeTcp)
    served.targets.push(
      await reported(() => nvme.NvmeTarget.listen({ ...address, ...nvmeOptions, tls: nvmeTls })),
    );
  if (plan.nvmeRdma.length > 0) {
    const target = nvme.NvmeTarget.open(nvmeOptions);
    served.targets.push(target);
    for (const address of plan.nvmeRdma)
      served.rdma.push(await reported(() => target.listenRdma({ ...address, maxConnections })));
  }
  const tls = plan.nbdTls === undefined ? {} : { tls: plan.nbdTls };
  const exports = new Map(disks.map(({ name, device }) => [name, device]));
  for (const address of plan.nbd)
    served.servers.push(
      await reported(() => nvme.serveNbd(exports, { ...address, ...tls, maxConnections, ...rates })),
    );
}

/** What the package refuses is said in one line: a file, a size, an address. */
async function reported<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw new CommandError((error as Error).message, 1, error);
  }
}

/** Completes the operations under way, accepts no more, and makes written data durable. */
async function end(disks: readonly Disk[], { targets, servers }: Served, terminal: Terminal): Promise<void> {
  await Promise.all([...targets, ...servers].map((one) => one.close()));
  for (const { file, device } of disks) {
    try {
      await device.flush().finally(() => device.close());
    } catch (error) {
      const { message } = error as Error;
      terminal.complain(`cinnabar disk: what was written last to ${file} may be lost: ${message}`);
    }
  }
}

/** What the command prints while it serves. */
class Output {
  readonly #counts: DeviceCounts;
  readonly #served: Served;
  readonly #isJson: boolean;
  readonly #terminal: Terminal;
  #before: DeviceCounts;
  #beforeMs = performance.now();
  #connectionsBefore = 0;
  /** The line of figures stands above the cursor, and the next one takes its place. */
  #hasLine = false;

  constructor(counts: DeviceCounts, served: Served, isJson: boolean, terminal: Terminal) {
    this.#counts = counts;
    this.#served = served;
    this.#isJson = isJson;
    this.#terminal = terminal;
    this.#before = { ...counts };
  }

  serving(disks: readonly Disk[], nqn: string): void {
    const nvmeTcp = this.#served.targets
      .filter(({ address }) => address.port > 0)
      .map(({ address }) => ({ ...address, nqn }));
    const nvmeRdma = this.#served.rdma.map((address) => ({ ...address, nqn }));
    const nbd = this.#served.servers.flatMap(({ uris }) => uris);
    if (this.#isJson) {
      const facts = disks.map(({ file, device: { bytes: size, blockBytes, isReadOnly } }) => ({
        ...{ file, bytes: size, blockBytes, isReadOnly },
      }));
      this.#print({ event: "serving", disks: facts, nvmeTcp, nvmeRdma, nbd });
      return;
    }
    for (const { file, device } of disks)
      this.#terminal.print(
        `${file}: ${device.bytes} bytes, blocks of ${device.blockBytes}${device.isReadOnly ? ", read-only" : ""}`,
      );
    for (const [name, addresses] of Object.entries({ "nvme-tcp": nvmeTcp, "nvme-rdma": nvmeRdma }))
      for (const { host, port } of addresses)
        this.#terminal.print(`${name}: ${host.includes(":") ? `[${host}]` : host}:${port} ${nqn}`);
    for (const uri of nbd) this.#terminal.print(`nbd: ${uri}`);
  }

  grown(file: string, size: number): void {
    if (this.#isJson) this.#print({ event: "grown", file, bytes: size });
    else this.#terminal.print(`${file}: ${size} bytes now`);
    this.#hasLine = false;
  }

  /** The figures since the last time. */
  interval(): void {
    const nowMs = performance.now();
    const seconds = (nowMs - this.#beforeMs) / 1000;
    const before = this.#before;
    const now = { ...this.#counts };
    const connections = [...this.#served.targets, ...this.#served.servers].reduce(
      (sum, one) => sum + one.stats().open,
      0,
    );
    const isQuiet =
      connections === this.#connectionsBefore &&
      now.reads + now.writes + now.others + now.failed ===
        before.reads + before.writes + before.others + before.failed;
    this.#before = now;
    this.#beforeMs = nowMs;
    this.#connectionsBefore = connections;
    const figures = {
      readsPerSecond: (now.reads - before.reads) / seconds,
      readBytesPerSecond: (now.readBytes - before.readBytes) / seconds,
      writesPerSecond: (now.writes - before.writes) / seconds,
      writtenBytesPerSecond: (now.writtenBytes - before.writtenBytes) / seconds,
      othersPerSecond: (now.others - before.others) / seconds,
      failed: now.failed - before.failed,
      connections,
    };
    if (this.#isJson) {
      this.#print({ event: "interval", seconds, ...figures });
      return;
    }
    const isOnScreen = this.#terminal.rows !== undefined;
    if (!isOnScreen && isQuiet) return;
    const line = [
      `${shortNumber(figures.readsPerSecond)} reads/s ${shortNumber(figures.readBytesPerSecond)}B/s`,
      `${shortNumber(figures.writesPerSecond)} writes/s ${shortNumber(figures.writtenBytesPerSecond)}B/s`,
      `${shortNumber(figures.othersPerSecond)} others/s`,
      `${now.failed} errors`,
      `${connections} connections`,
    ].join(", ");
    const shown = line.slice(0, this.#terminal.columns);
    if (isOnScreen && this.#hasLine) this.#terminal.replaceLine(shown);
    else this.#terminal.print(shown);
    this.#hasLine = true;
  }

  ended(): void {
    const { reads, writes, others, failed } = this.#counts;
    if (this.#isJson) this.#print({ event: "ended", ...this.#counts });
    else this.#terminal.print(`ended: ${reads} reads, ${writes} writes, ${others} others, ${failed} errors`);
  }

  #print(value: object): void {
    this.#terminal.print(JSON.stringify(value));
  }
}
