import { describeFabrics, describeSealing, type FabricsReport, type SealingReport } from "cinnabar/inspect";
import { optionsOf } from "../arguments.ts";
import { type Command, UsageError } from "../command.ts";
import { table } from "../table.ts";
import type { Terminal } from "../terminal.ts";

const help = `Usage: cinnabar info [--all] [--json] [--require FABRIC…]

Prints which fabrics this machine can use, and which of them is the fastest.
Prints versions, RDMA devices, what libfabric offers at each
address, RDMA connections, the limit of locked memory, which OpenSSL seals
sessions and how fast, and what Cinnabar changes in other libraries because of
their faults.

  --all             Prints the other fabrics too, each with the reason and the
                    remedy.
  --json            Prints the report as one JSON object (docs/guide/cli.md).
  --require FABRIC  Exits with status 1 if this machine cannot use the fabric:
                    mem, shm, tcp, verbs, … Repeat it for several fabrics.`;

/** `cinnabar info`: reports which fabrics this machine can use, and why it cannot use the others. */
export const info: Command = {
  help,
  run(args, terminal) {
    const {
      all = false,
      json = false,
      require: required = [],
    } = optionsOf(args, {
      all: { type: "boolean" },
      json: { type: "boolean" },
      require: { type: "string", multiple: true },
    });
    const report = describeFabrics();
    for (const scheme of required) {
      if (report.fabrics.some((fabric) => fabric.scheme === scheme) || !report.libfabric.loaded) continue;
      const known = [...new Set(report.fabrics.map((fabric) => fabric.scheme))].join(", ");
      throw new UsageError(`unknown fabric "${scheme}", expected one of ${known}`);
    }
    const sealing = describeSealing();
    const text = json
      ? JSON.stringify({ ...report, sealing }, undefined, 2)
      : inWords(report, sealing, terminal, all);
    terminal.print(text.split("\n"));
    const missing = required.filter((scheme) => !isUsable(report, scheme));
    if (missing.length > 0) terminal.complain(`cinnabar info: this machine cannot use ${missing.join(", ")}`);
    return missing.length === 0 ? 0 : 1;
  },
};

function isUsable({ fabrics }: FabricsReport, scheme: string): boolean {
  return fabrics.some((fabric) => fabric.scheme === scheme && fabric.available);
}

function inWords(report: FabricsReport, sealing: SealingReport, terminal: Terminal, all: boolean): string {
  const parts = [
    `${usable(report)}\n${versions(report)}`,
    fabrics(report, terminal, all),
    devices(report, terminal),
  ];
  const last = `${lockedMemory(report)}
${forks[report.forkSafety]}
${seals(sealing)}`;
  return [...parts, domains(report, terminal), connections(report, terminal), last, patches(report, terminal)]
    .filter((part) => part !== "")
    .join("\n\n");
}

/** Fastest first, on one host and between hosts. */
const onOneHost = ["shm", "net+unix", "tcp", "net"];
const betweenHosts = ["verbs", "cxi", "opx", "psm3", "psm2", "efa", "ucx", "tcp", "net"];

function usable(report: FabricsReport): string {
  const schemes = new Set<string>(
    report.fabrics.filter(({ available }) => available).map(({ scheme }) => scheme),
  );
  const local = onOneHost.find((scheme) => schemes.has(scheme));
  const remote = betweenHosts.find((scheme) => schemes.has(scheme));
  return (
    `This machine can use ${[...schemes].join(", ")}. ` +
    `Fastest on one host: ${local ?? "none"}. Fastest between hosts: ${remote ?? "none"}.`
  );
}

function versions({ versions: { cinnabar, node }, addon, libfabric }: FabricsReport): string {
  const lines = [`cinnabar ${cinnabar}, Node ${node}`];
  const taken = addon.find(({ reason }) => reason === "");
  if (taken !== undefined) lines.push(`addon ${taken.path} (${taken.origin})`);
  else lines.push(...addon.map(({ path, reason }) => `addon not loaded: ${path}: ${reason}`));
  if (libfabric.loaded)
    lines.push(`libfabric ${libfabric.version.join(".")}, ${libfabric.path} (${libfabric.origin})`);
  else lines.push(...libfabric.tried.map(({ path, reason }) => `libfabric not loaded: ${path}: ${reason}`));
  return lines.join("\n");
}

function fabrics(report: FabricsReport, terminal: Terminal, all: boolean): string {
  const rest = report.fabrics.length - report.fabrics.filter(({ available }) => available).length;
  const shown = report.fabrics.filter(({ available }) => all || available);
  const rows = shown.map(({ scheme, provider, available, reason }) => [
    `${scheme}://`,
    provider,
    available ? "yes" : "no",
    reason,
  ]);
  const lines = table(terminal, ["FABRIC", "PROVIDER", "USABLE", "REASON"], rows);
  if (!all && rest > 0) lines.push(`${rest} more cannot be used here: cinnabar info --all says why`);
  return lines.join("\n");
}

function devices(report: FabricsReport, terminal: Terminal): string {
  if (report.devices.length === 0) return "RDMA devices: none";
  const rows = report.devices.flatMap(({ device, transport, ports, addresses }) =>
    ports.map(({ port, state, linkLayer, rate, interfaces, gids }) => [
      `${device}:${port}`,
      transport,
      state,
      linkLayer,
      rate,
      interfaces.map(({ name, mtuBytes }) => `${name} (${mtuBytes})`).join(" ") || "-",
      addresses.join(" ") || "-",
      gids.map(({ gid, type }) => (type === "" ? gid : `${gid} ${type}`)).join(", "),
    ]),
  );
  const heading = ["DEVICE", "KIND", "STATE", "LINK", "RATE", "INTERFACE (MTU)", "ADDRESSES", "GIDS"];
  return table(terminal, heading, rows).join("\n");
}

function domains(report: FabricsReport, terminal: Terminal): string {
  const rows = report.fabrics.flatMap(({ scheme, provider, domains: offered }) =>
    offered.map((domain) => [
      domain.address === ""
        ? "-"
        : `${scheme}://${domain.address.includes(":") ? `[${domain.address}]` : domain.address}`,
      provider,
      domain.domain,
      domain.mtuBytes === 0 ? "-" : `${domain.mtuBytes}`,
      `${domain.injectBytes}`,
      `${domain.sendQueueDepth}/${domain.receiveQueueDepth}`,
      `${domain.extents}`,
      [...domain.capabilities, ...domain.registration].join(" "),
    ]),
  );
  if (rows.length === 0) return "";
  const heading = [
    "ADDRESS",
    "PROVIDER",
    "DOMAIN",
    "MTU",
    "INJECT",
    "QUEUES",
    "EXTENTS",
    "CAPABILITIES, REGISTRATION",
  ];
  return table(terminal, heading, rows).join("\n");
}

function connections(report: FabricsReport, terminal: Terminal): string {
  if (report.connections.length === 0) return "";
  const rows = report.connections.map(({ device, state, local, remote, pid, queuePair }) => [
    device,
    state,
    local || "-",
    remote || "-",
    queuePair === undefined ? "-" : `${queuePair.number} ${queuePair.state}`,
    pid === 0 ? "-" : `${pid}`,
  ]);
  return table(terminal, ["DEVICE", "STATE", "LOCAL", "REMOTE", "QUEUE PAIR", "PROCESS"], rows).join("\n");
}

function lockedMemory({
  lockedMemory: { pinnedBytes, limitBytes, leftBytes, mayExceedLimit },
}: FabricsReport): string {
  const limit = limitBytes === null ? "no limit" : `limit ${kib(limitBytes)}`;
  const left = leftBytes === null ? "any amount can be pinned" : `${kib(leftBytes)} left`;
  const right = limitBytes !== null && mayExceedLimit ? " (by CAP_IPC_LOCK)" : "";
  return `Locked memory: ${limit}, ${kib(pinnedBytes)} pinned by this process, ${left}${right}`;
}

/** fork(2) shares pages with the child until one side writes. Pinned pages need protection from that. */
const forks: Readonly<Record<FabricsReport["forkSafety"], string>> = {
  kernel: "Fork safety: the kernel protects pinned memory",
  libibverbs: "Fork safety: libibverbs protects pinned memory (RDMAV_FORK_SAFE)",
  none: "Fork safety: none; child processes can break transfers. Set RDMAV_FORK_SAFE=1, or use Linux 5.12 or later",
};

function seals({ path, version, suites }: SealingReport): string {
  const speeds = suites.map(({ name, bytesPerSecond }) =>
    bytesPerSecond === 0 ? `no ${name}` : `${name} ${(bytesPerSecond / 1e9).toFixed(1)} GB/s`,
  );
  return `Sealing: ${version}, ${path}: ${speeds.join(", ")}`;
}

function patches(report: FabricsReport, terminal: Terminal): string {
  const rows = report.patches
    .filter(({ state }) => state !== "not needed")
    .map(({ name, library, version, state, what, switchOff, switchOn }) => [
      name,
      `${library} ${version}`,
      state,
      state === "off" && switchOn !== "" ? switchOn : switchOff,
      what,
    ]);
  return table(terminal, ["PATCH", "OF", "STATE", "SWITCH", "CHANGE"], rows).join("\n");
}

function kib(bytes: number): string {
  return `${Math.floor(bytes / 1024)} KiB`;
}
