import { describeFabrics, type FabricsReport } from "cinnabar";
import { optionsOf } from "../arguments.ts";
import { type Command, UsageError } from "../command.ts";
import { table } from "../table.ts";
import type { Terminal } from "../terminal.ts";

const help = `Usage: cinnabar info [--json] [--require FABRIC…]

Tells what this machine has for Cinnabar: the fabrics that URLs can name, the
libfabric providers behind them with their capabilities, RDMA devices, limits
and versions; and for what cannot be used, why, and what to do about it.

  --json            the same as one JSON object (docs/guide/cli.md)
  --require FABRIC  exit with 1 unless the fabric can be used: mem, shm, tcp,
                    verbs, …; may be given several times`;

/** What of this machine can be used, and why not the rest. */
export const info: Command = {
  name: "info",
  summary: "what this machine has: fabrics, devices, limits, versions",
  help,
  run(args, terminal) {
    const { json = false, require: required = [] } = optionsOf(args, {
      json: { type: "boolean" },
      require: { type: "string", multiple: true },
    });
    const report = describeFabrics();
    for (const scheme of required) {
      if (report.fabrics.some((fabric) => fabric.scheme === scheme) || !report.libfabric.loaded) continue;
      const known = [...new Set(report.fabrics.map((fabric) => fabric.scheme))].join(", ");
      throw new UsageError(`unknown fabric "${scheme}", known are ${known}`);
    }
    terminal.print(json ? JSON.stringify(report, undefined, 2) : inWords(report, terminal));
    const missing = required.filter((scheme) => !isUsable(report, scheme));
    if (missing.length > 0) terminal.complain(`cinnabar info: not usable here: ${missing.join(", ")}`);
    return missing.length === 0 ? 0 : 1;
  },
};

function isUsable({ fabrics }: FabricsReport, scheme: string): boolean {
  return fabrics.some((fabric) => fabric.scheme === scheme && fabric.available);
}

function inWords(report: FabricsReport, terminal: Terminal): string {
  const parts = [versions(report), fabrics(report, terminal), devices(report, terminal)];
  const last = `${lockedMemory(report)}
${forks[report.forkSafety]}`;
  return [...parts, domains(report, terminal), connections(report, terminal), last]
    .filter((part) => part !== "")
    .join("\n\n");
}

function versions({ versions: { cinnabar, node }, addon, libfabric }: FabricsReport): string {
  const lines = [`cinnabar ${cinnabar}, Node ${node}`];
  const taken = addon.find(({ reason }) => reason === "");
  if (taken !== undefined) lines.push(`addon ${taken.path}`);
  else lines.push(...addon.map(({ path, reason }) => `no addon: ${path}: ${reason}`));
  if (libfabric.loaded) lines.push(`libfabric ${libfabric.version.join(".")}, ${libfabric.path}`);
  else lines.push(...libfabric.tried.map(({ path, reason }) => `no libfabric: ${path}: ${reason}`));
  return lines.join("\n");
}

function fabrics(report: FabricsReport, terminal: Terminal): string {
  const rows = report.fabrics.map(({ scheme, provider, available, reason }) => [
    `${scheme}://`,
    provider,
    available ? "yes" : "no",
    reason,
  ]);
  return table(terminal, ["FABRIC", "PROVIDER", "USABLE", "WHY NOT"], rows);
}

function devices(report: FabricsReport, terminal: Terminal): string {
  if (report.devices.length === 0) return "No RDMA device.";
  const rows = report.devices.flatMap(({ device, transport, ports, addresses, onDemandPaging }) =>
    ports.map(({ port, state, linkLayer, rate, interfaces, gids }) => [
      `${device}:${port}`,
      transport,
      state,
      linkLayer,
      rate,
      interfaces.map(({ name, mtuBytes }) => `${name} (${mtuBytes})`).join(" ") || "-",
      addresses.join(" ") || "-",
      onDemandPaging ? "yes" : "no",
      gids.map(({ gid, type }) => (type === "" ? gid : `${gid} ${type}`)).join(", "),
    ]),
  );
  const heading = [
    "DEVICE",
    "KIND",
    "STATE",
    "LINK",
    "RATE",
    "INTERFACE (MTU)",
    "ADDRESSES",
    "ON DEMAND",
    "GIDS",
  ];
  return table(terminal, heading, rows);
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
      `${domain.vectors}`,
      [...domain.capabilities, ...domain.registration].join(" "),
    ]),
  );
  if (rows.length === 0) return "";
  const heading = [
    "AT",
    "PROVIDER",
    "DOMAIN",
    "MTU",
    "INJECT",
    "QUEUES",
    "VECTORS",
    "CAPABILITIES, REGISTRATION",
  ];
  return table(terminal, heading, rows);
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
  return table(terminal, ["DEVICE", "CONNECTION", "LOCAL", "REMOTE", "QUEUE PAIR", "PROCESS"], rows);
}

function lockedMemory({
  lockedMemory: { pinnedBytes, limitBytes, leftBytes, mayExceedLimit },
}: FabricsReport): string {
  const limit = limitBytes === null ? "no limit" : `limit ${kib(limitBytes)}`;
  const left = leftBytes === null ? "any amount may be locked" : `${kib(leftBytes)} left`;
  const right = limitBytes !== null && mayExceedLimit ? " (by CAP_IPC_LOCK)" : "";
  return `Locked memory: ${limit}, ${kib(pinnedBytes)} pinned by this process, ${left}${right}`;
}

/** Starting a child process copies what is in memory, pinned pages included. */
const forks: Readonly<Record<FabricsReport["forkSafety"], string>> = {
  kernel: "Child processes: the kernel keeps pinned memory safe from them",
  libibverbs: "Child processes: libibverbs keeps pinned memory from them (RDMAV_FORK_SAFE)",
  nobody:
    "Child processes: pinned memory may be lost to them; set RDMAV_FORK_SAFE=1, or take Linux 5.12 or later",
};

function kib(bytes: number): string {
  return `${Math.floor(bytes / 1024)} KiB`;
}
