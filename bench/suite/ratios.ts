import type { Figure } from "./figure.ts";
import { pairedRatio, type Summary, summarize } from "./statistics.ts";

/** A ratio, ours divided by theirs round by round, or a figure of ours that stands among the ratios as it is. */
export interface Ratio extends Summary {
  readonly name: string;
  readonly better: Figure["better"];
  /** The names of the two figures it is taken of. */
  readonly ours: string;
  readonly theirs?: string;
}

interface Definition {
  readonly name: string;
  /** Where several are ours (get and put), the one that fares worst against theirs counts. */
  readonly ours: readonly string[];
  /**
   * Where several are theirs (TCP and Unix socket), the one that fares best counts. Without theirs the figure itself is
   * told.
   */
  readonly theirs?: readonly string[];
}

const overShm = { grpc: ["grpc-unix", "grpc-tcp"], net: ["net-tcp"], unix: ["net-unix"] };
const overTcp = { grpc: ["grpc-tcp"], net: ["net-tcp"] };

const small = (
  transport: string,
  inFlight: number,
  measure: string,
  beside: string,
  theirs: readonly string[],
): Definition => ({
  name: `${transport}.small.${inFlight}.${measure.replace("_us", "")}_vs_${beside}`,
  ours: [`${transport}.small.${inFlight}.${measure}`],
  theirs: theirs.map((key) => `${key}.small.${inFlight}.${measure}`),
});

const bulk = (transport: string, size: string, beside: string, theirs: readonly string[]): Definition => ({
  name: `${transport}.bulk.${size}.gbps_vs_${beside}`,
  ours: ["get", "put"].map((op) => `${transport}.bulk.${size}.${op}_gbps`),
  theirs: theirs.map((key) => `${key}.bulk.${size}.gbps`),
});

/** Over tcp: speed beside libfabric in C++ and node:net, and processor time beside node:net. */
const besideFloor = (size: string, inFlight: number): Definition[] => {
  const at = (key: string) => `${key}.bulk_floor.${size}.${inFlight}`;
  const pairs = [
    { op: "get", floor: "read" },
    { op: "put", floor: "write" },
  ];
  return pairs.flatMap(({ op, floor }) => [
    {
      name: `tcp.bulk.${size}.${inFlight}.${op}_gbps_vs_floor`,
      ours: [`${at("tcp")}.${op}_gbps`],
      theirs: [`${at("floor-tcp")}.${floor}_gbps`],
    },
    {
      name: `tcp.bulk.${size}.${inFlight}.${op}_gbps_vs_net`,
      ours: [`${at("tcp")}.${op}_gbps`],
      theirs: [`${at("net-tcp")}.gbps`],
    },
    {
      name: `tcp.bulk.${size}.${inFlight}.${op}_cpu_vs_net`,
      ours: [`${at("tcp")}.${op}_cpu_ms_per_gb`],
      theirs: [`${at("net-tcp")}.cpu_ms_per_gb`],
    },
  ]);
};

/** Several peers at once, and peers that compute, beside node:net. */
const besideNet = (fabric: string, peers: string): Definition[] =>
  ["gbps", "cpu_ms_per_gb"].flatMap((measure) =>
    ["get", "put"].map((op) => ({
      name: `${fabric}.bulk_peers.${peers}.${op}_${measure.replace("_ms_per_gb", "")}_vs_net`,
      ours: [`${fabric}.bulk_peers.${peers}.${op}_${measure}`],
      theirs: (fabric === "shm" ? overShm.unix : overTcp.net).map(
        (key) => `${key}.bulk_peers.${peers}.${measure}`,
      ),
    })),
  );

const stream = (transport: string, beside: string, theirs: readonly string[]): Definition => ({
  name: `${transport}.stream.items_vs_${beside}`,
  ours: [`${transport}.stream.items`],
  theirs: theirs.map((key) => `${key}.stream.items`),
});

/** Bytes as items of a stream beside `bulkStream`, and that beside node:net. */
const besideBulkStream = (fabric: string, size: string): Definition[] => {
  const at = (key: string) => `${key}.byte_streams.${size}`;
  const net = fabric === "shm" ? overShm.unix : overTcp.net;
  const works = [
    ...["up", "down"].flatMap((work) => ["gbps", "cpu_ms_per_gb"].map((measure) => ({ work, measure }))),
    { work: "bounce", measure: "p50_us" },
    { work: "short", measure: "us" },
  ];
  return works.flatMap(({ work, measure }) => [
    ...["items", "wide_items", "web_items"].map((way) => ({
      name: `${at(fabric)}.${work}.${way}_${measure}_vs_bulk_stream`,
      ours: [`${at(fabric)}.${work}.${way}_${measure}`],
      theirs: [`${at(fabric)}.${work}.bulk_stream_${measure}`],
    })),
    {
      name: `${at(fabric)}.${work}.bulk_stream_${measure}_vs_net`,
      ours: [`${at(fabric)}.${work}.bulk_stream_${measure}`],
      theirs: net.map((key) => `${at(key)}.${work}.${measure}`),
    },
  ]);
};

const broadcast = (transport: string, theirs: readonly string[]): Definition => ({
  name: `${transport}.group.broadcast16_vs_grpc`,
  ours: [`${transport}.group.broadcast16.p50_us`],
  theirs: theirs.map((key) => `${key}.group.broadcast16.p50_us`),
});

/** Where other processes want the processors, too, beside node:net. */
const inCompany = (fabric: "shm" | "tcp"): Definition[] => {
  const [key, beside] = fabric === "shm" ? ["net-unix", "unix"] : ["net-tcp", "net"];
  const ratio = (name: string, work: string, measure: string): Definition => ({
    name: `${name}_vs_${beside}`,
    ours: [`${fabric}.${work}.${measure}`],
    theirs: [`${key}.${work}.${measure}`],
  });
  return [
    ratio(`onecore.${fabric}.small.1.p50`, "onecore.1", "p50_us"),
    ratio(`onecore.${fabric}.small.8.ops`, "onecore.8", "ops"),
    ratio(`busy.${fabric}.small.1.p50`, "busy.1", "p50_us"),
    ...["company.4", "company.16", "crowd.64"].flatMap((crowd) =>
      [1, 8].map((inFlight) =>
        ratio(`${crowd.replace(".", "")}.${fabric}.${inFlight}.ops`, `${crowd}.${inFlight}`, "ops"),
      ),
    ),
  ];
};

/** With code and data out of the caches, beside node:net. */
const coldRatios: readonly Definition[] = [
  ["shm", "net-unix", "unix"],
  ["tcp", "net-tcp", "net"],
  ["net", "net-tcp", "net"],
].flatMap(([fabric, key, beside]) =>
  ["alone", "swept"].flatMap((where) =>
    ["p50", "client_cpu", "client_user"].map((measure) => ({
      name: `cold.${fabric}.${where}.${measure}_vs_${beside}`,
      ours: [`${fabric}.cold.${where}.1.${measure}_us`],
      theirs: [`${key}.cold.${where}.1.${measure}_us`],
    })),
  ),
);

/** Processor time and memory of a process before its first call. */
const startRatios: readonly Definition[] = [
  {
    name: "start.import_cpu_vs_grpc",
    ours: ["start.cinnabar.import_cpu_ms"],
    theirs: ["start.grpc.import_cpu_ms"],
  },
  {
    name: "start.import_standard_cpu_vs_grpc",
    ours: ["start.standard.import_cpu_ms"],
    theirs: ["start.grpc.import_cpu_ms"],
  },
  {
    name: "start.import_cpu_vs_grpc_loader",
    ours: ["start.cinnabar.import_cpu_ms"],
    theirs: ["start.grpc-loader.import_cpu_ms"],
  },
  ...["shm", "tcp"].map((fabric) => ({
    name: `start.open_${fabric}_cpu_ms`,
    ours: [`start.${fabric}.open_cpu_ms`],
  })),
  { name: "start.open_net_cpu_ms", ours: ["start.net.open_cpu_ms"] },
  ...["shm", "tcp"].map((fabric) => ({
    name: `start.server_${fabric}_memory_vs_grpc`,
    ours: [`start.server_${fabric}.resident_mib`],
    theirs: ["start.server_grpc.resident_mib"],
  })),
  { name: "start.help_vs_node", ours: ["start.help.whole_ms"], theirs: ["start.nothing.whole_ms"] },
];

/** Those that `--quick` promises. */
export const quickRatios: readonly Definition[] = [
  small("shm", 1, "p50_us", "grpc", overShm.grpc),
  small("shm", 1, "p50_us", "unix", overShm.unix),
  small("shm", 64, "ops", "net", overShm.net),
  small("shm", 64, "ops", "grpc", overShm.grpc),
  small("tcp", 1, "p50_us", "net", overTcp.net),
  small("tcp", 1, "p50_us", "grpc", overTcp.grpc),
  small("tcp", 64, "ops", "net", overTcp.net),
  bulk("shm", "16MiB", "net", ["net-unix", "net-tcp"]),
  bulk("shm", "16MiB", "grpc", ["grpc-unix", "grpc-tcp"]),
  bulk("tcp", "16MiB", "net", ["net-tcp"]),
  {
    name: "tcp.bulk.1MiB.gbps_vs_floor",
    ours: ["get", "put"].map((op) => `tcp.bulk_floor.1MiB.4.${op}_gbps`),
    theirs: ["read", "write"].map((op) => `floor-tcp.bulk_floor.1MiB.4.${op}_gbps`),
  },
  small("net", 1, "p50_us", "net", overTcp.net),
  small("net", 1, "p50_us", "grpc", overTcp.grpc),
  small("net", 64, "ops", "net", overTcp.net),
  small("net", 64, "ops", "grpc", overTcp.grpc),
  bulk("net", "16MiB", "net", ["net-tcp"]),
  bulk("net", "16MiB", "grpc", ["grpc-tcp"]),
  stream("shm", "net", overShm.net),
  stream("shm", "grpc", overShm.grpc),
  stream("tcp", "net", overTcp.net),
  stream("tcp", "grpc", overTcp.grpc),
  broadcast("shm", overShm.grpc),
  broadcast("tcp", overTcp.grpc),
  { name: "shm.oneway.ops_vs_call", ours: ["shm.oneway.ops"], theirs: ["shm.oneway.calls"] },
  { name: "idle_cpu_percent", ours: ["idle_cpu_percent"] },
];

/** How long a piece is on average, of 1,024. */
const scatterSizes = ["4KiB", "64KiB"];

/** Blocks of 4 KiB on a device that keeps nothing, beside a call that echoes 4 KiB. */
const block = (name: string, subject: string, beside: string): Definition => ({
  name: `block.null.${name}`,
  ours: ["read", "write"].map((op) => `${subject}.block.null.32.${op}_ops`),
  theirs: [`${beside}.block.echo.32.echo_ops`],
});

/** Those that only a whole run brings, or one over an RDMA device. */
const furtherRatios: readonly Definition[] = [
  ...["fastify", "connect-node"].map((peer) => ({
    name: `http.unary.ops_vs_${peer.replace("-", "_")}`,
    ours: ["cinnabar.http.unary.ops"],
    theirs: [`${peer}.http.unary.ops`],
  })),
  {
    name: "http.upload.gbps_vs_node",
    ours: ["cinnabar.http.upload.gbps"],
    theirs: ["node.http.upload.gbps"],
  },
  block("qd32_vs_grpc", "shm", "grpc-tcp"),
  block("qd32_vs_net", "shm", "net-tcp"),
  block("tcp_qd32_vs_net", "tcp", "net-tcp"),
  block("nvme_tcp_qd32_vs_net", "nvme-tcp", "net-tcp"),
  {
    name: "nbd.qd32_vs_nbdkit",
    ours: ["read", "write"].map((op) => `nbd.block.memory.32.${op}_ops`),
    theirs: ["read", "write"].map((op) => `nbdkit.block.memory.32.${op}_ops`),
  },
  ...["write64k", "write1m", "read1m"].flatMap((work) =>
    ["cpu_ms_per_gb", "gbps"].map((measure) => ({
      name: `nbd.${work}_${measure.replace("_ms_per_gb", "")}_vs_nbdkit`,
      ours: [`nbd.block.long.${work}_${measure}`],
      theirs: [`nbdkit.block.long.${work}_${measure}`],
    })),
  ),
  ...[1, 32].flatMap((depth) => [
    {
      name: `nvme.tcp.qd${depth}_vs_nvmet`,
      ours: [`nvme-tcp.linux.${depth}.read_ops`],
      theirs: [`nvmet.linux.${depth}.read_ops`],
    },
    {
      name: `nvme.rdma.qd${depth}_vs_nvmet`,
      ours: [`nvme-rdma.linux.${depth}.read_ops`],
      theirs: [`nvmet-rdma.linux.${depth}.read_ops`],
    },
  ]),
  ...["metrics", "traces1", "traces100"].map((observed) => ({
    name: `shm.${observed}.ops_vs_off`,
    ours: [`shm.telemetry.${observed}.ops`],
    theirs: ["shm.telemetry.off.ops"],
  })),
  {
    name: "shm.small.1.p50_vs_ring",
    ours: ["shm.small.1.p50_us"],
    theirs: ["shm.floor.ring.round_trip_us"],
  },
  small("verbs", 1, "p50_us", "tcp", ["tcp-link"]),
  small("verbs", 64, "ops", "tcp", ["tcp-link"]),
  ...["get", "put"].map((op) => ({
    name: `verbs.bulk.16MiB.${op}_gbps_vs_tcp`,
    ours: [`verbs.bulk.16MiB.${op}_gbps`],
    theirs: [`tcp-link.bulk.16MiB.${op}_gbps`],
  })),
  ...[
    ["shm", "net-unix", "net-tcp"],
    ["tcp", "net-tcp"],
    ["net", "net-tcp"],
  ].map(([key, ...theirs]) => ({
    name: `mapfile.${key}.get_vs_net`,
    ours: [`${key}.mapfile.get_gbps`],
    theirs: theirs.map((net) => `${net}.mapfile.gbps`),
  })),
  ...["64KiB", "1MiB", "16MiB"].flatMap((size) =>
    [1, 4, 8].flatMap((inFlight) => besideFloor(size, inFlight)),
  ),
  ...["tcp", "shm"].flatMap((fabric) => ["one", "four", "busy"].flatMap((peers) => besideNet(fabric, peers))),
  ...["shm", "tcp", "verbs"].flatMap((fabric) =>
    ["64KiB", "1MiB", "16MiB", "256MiB"].flatMap((size) => [
      {
        name: `${fabric}.bulk.${size}.region_vs_call`,
        ours: [`${fabric}.registration.${size}.moved.region_us`],
        theirs: [`${fabric}.registration.${size}.moved.call_us`],
      },
      {
        name: `${fabric}.bulk.${size}.registration_vs_move`,
        ours: [`${fabric}.registration.${size}.register_us`],
        theirs: [`${fabric}.registration.${size}.moved.region_us`],
      },
    ]),
  ),
  ...["shm", "tcp", "verbs"].flatMap((fabric) =>
    ["64B", "4KiB", "64KiB", "1MiB"].map((size) => ({
      name: `${fabric}.bulk.${size}.lend_vs_carry`,
      ours: [`${fabric}.few_bytes.${size}.lend_us`],
      theirs: [`${fabric}.few_bytes.${size}.carry_us`],
    })),
  ),
  ...["shm", "tcp", "verbs"].flatMap((fabric) =>
    scatterSizes.flatMap((size) =>
      ["get", "put"].map((op) => ({
        name: `${fabric}.scatter.${size}.${op}_vs_one_piece`,
        ours: [`${fabric}.scatter.${size}.scattered.${op}_gbps`],
        theirs: [`${fabric}.scatter.${size}.contiguous.${op}_gbps`],
      })),
    ),
  ),
  ...["shm", "tcp"].flatMap((fabric) =>
    [1, 64].flatMap((inFlight) =>
      ["metadata", "middleware"].map((variant) => ({
        name: `${fabric}.along.${inFlight}.${variant}_vs_plain`,
        ours: [`${fabric}.along.${inFlight}.${variant}_us`],
        theirs: [`${fabric}.along.${inFlight}.plain_us`],
      })),
    ),
  ),
  ...["shm", "tcp"].flatMap((fabric) =>
    [1, 64].map((inFlight) => ({
      name: `web_beside.${fabric}.${inFlight}.p99_vs_unix`,
      ours: [`web_beside.${fabric}.${inFlight}.p99_us`],
      theirs: [`web_beside.net-unix.${inFlight}.p99_us`],
    })),
  ),
  ...["p50", "p99"].map((quantile) => ({
    name: `shm.stream_beside.${quantile}_vs_alone`,
    ours: [`shm.stream_beside.stalled.${quantile}_us`],
    theirs: [`shm.stream_beside.nothing.${quantile}_us`],
  })),
  ...[
    { ours: "proxy", key: "nest" },
    { ours: "typed", key: "nest_typed" },
  ].flatMap(({ ours, key }) =>
    ["tcp", "grpc"].flatMap((theirs) =>
      ["1.p50_us", "64.ops"].map((measure) => ({
        name: `${key}.small.${measure.replace("_us", "")}_vs_nest_${theirs}`,
        ours: [`nest-${ours}.nest_small.${measure}`],
        theirs: [`nest-${theirs}.nest_small.${measure}`],
      })),
    ),
  ),
  {
    name: "tcp.sealed.64.ops_vs_plain",
    ours: ["tcp-sealed.security.small.64.ops"],
    theirs: ["tcp.security.small.64.ops"],
  },
  {
    name: "tcp.sealed.1.p50_vs_plain",
    ours: ["tcp-sealed.security.small.1.p50_us"],
    theirs: ["tcp.security.small.1.p50_us"],
  },
  {
    name: "tcp.sealed.1.p50_vs_grpc_mtls",
    ours: ["tcp-sealed.security.small.1.p50_us"],
    theirs: ["grpc-mtls.security.small.1.p50_us"],
  },
  {
    name: "tcp.sealed.64.ops_vs_grpc_mtls",
    ours: ["tcp-sealed.security.small.64.ops"],
    theirs: ["grpc-mtls.security.small.64.ops"],
  },
  {
    name: "tcp.sealed.bulk16MiB.gbps_vs_tls",
    ours: ["get", "put"].map((op) => `tcp-sealed.security.bulk.16MiB.${op}_gbps`),
    theirs: ["tls.security.bulk.16MiB.gbps"],
  },
  ...["shm", "tcp", "verbs", "tcp-link"].flatMap((fabric) =>
    ["64KiB", "1MiB"].flatMap((size) => besideBulkStream(fabric, size)),
  ),
  ...["tcp", "shm"].flatMap((fabric) => [
    {
      name: `reverse.${fabric}.small.1.p50_vs_forward`,
      ours: [`${fabric}.reverse.back.1.p50_us`],
      theirs: [`${fabric}.reverse.forward.1.p50_us`],
    },
    {
      name: `reverse.${fabric}.small.64.ops_vs_forward`,
      ours: [`${fabric}.reverse.back.64.ops`],
      theirs: [`${fabric}.reverse.forward.64.ops`],
    },
  ]),
  {
    name: "reverse.tcp.small.1.p50_vs_grpc",
    ours: ["tcp.reverse.back.1.p50_us"],
    theirs: ["grpc-tcp.reverse.back.1.p50_us"],
  },
  {
    name: "reverse.tcp.small.64.ops_vs_grpc",
    ours: ["tcp.reverse.back.64.ops"],
    theirs: ["grpc-tcp.reverse.back.64.ops"],
  },
  ...(["shm", "tcp"] as const).flatMap(inCompany),
  ...coldRatios,
  ...startRatios,
  { name: "lanes.2_vs_1.ops", ours: ["lanes.2.ops"], theirs: ["lanes.1.ops"] },
];

/** Every ratio whose figures have been measured. */
export function ratiosOf(
  figures: readonly Figure[],
  definitions = [...quickRatios, ...furtherRatios],
): Ratio[] {
  const byName = new Map(figures.map((figure) => [figure.name, figure]));
  const known = (names: readonly string[]) => names.flatMap((name) => byName.get(name) ?? []);
  return definitions.flatMap((definition) => {
    const ours = known(definition.ours);
    const theirs = known(definition.theirs ?? []);
    if (ours.length < definition.ours.length) return [];
    if (definition.theirs === undefined)
      return ours.slice(0, 1).map((figure) => asIs(definition.name, figure));
    const best = pick(theirs, (figure) => summarize(figure.rounds).median, "best");
    if (best === undefined) return [];
    const ratios = ours.map(
      (figure): Ratio => ({
        name: definition.name,
        better: figure.better,
        ours: figure.name,
        theirs: best.name,
        ...pairedRatio(figure.rounds, best.rounds),
      }),
    );
    return pick(ratios, ({ median }) => median, "worst") ?? [];
  });
}

function asIs(name: string, figure: Figure): Ratio {
  return { name, better: figure.better, ours: figure.name, ...summarize(figure.rounds) };
}

function pick<T extends Pick<Figure, "better">>(
  all: readonly T[],
  value: (one: T) => number,
  which: "best" | "worst",
): T | undefined {
  const [first] = all;
  const isUp = (first?.better === "more") === (which === "best");
  return [...all].sort((a, b) => (isUp ? value(b) - value(a) : value(a) - value(b)))[0];
}
