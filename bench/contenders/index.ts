import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Contender } from "./contender.ts";
import type { NestWay } from "./nest.ts";

export interface ContenderEntry {
  /** How figures begin that are its own, such as `shm` in `shm.small.1.p50_us`. */
  readonly key: string;
  /** As charts and tables call it. */
  readonly title: string;
  /** Whether the ratios of `--quick` need it. */
  readonly isInQuick: boolean;
  /** Whether the client brings the server along, see `Contender.serve`. */
  readonly isSelfServing?: true;
  /** Whether it needs the certificates that only the workload `security` has. */
  readonly isSecured?: true;
  /** Whether only the workload `nest` has it. */
  readonly isOfNest?: true;
  /** What must be known about its figures. */
  readonly note?: string;
  /**
   * Loads its library, so that a process has none but its own. `id` is the same word in its server and its client, and
   * in no other contender's.
   */
  load(id: string): Promise<Contender>;
}

const socketPath = (id: string) => join(tmpdir(), `cinnabar-bench-${id}.sock`);

const nest = (way: NestWay, title: string): ContenderEntry => ({
  key: `nest-${way}`,
  title,
  isInQuick: false,
  isOfNest: true,
  load: async () => (await import("./nest.ts")).nest(way),
});

const cinnabar = (key: string, isInQuick: boolean, listen: (id: string) => string): ContenderEntry => ({
  key,
  title: `Cinnabar ${key}`,
  isInQuick,
  load: async (id: string) => (await import("./cinnabar.ts")).cinnabar(listen(id)),
});

/** In the order in which each round measures them. */
export function contenders(verbsHost?: string): readonly ContenderEntry[] {
  // What verbs is held against goes the same way: over the interface of the device, not the loopback.
  const overDevice =
    verbsHost === undefined
      ? []
      : [
          cinnabar("verbs", false, () => `verbs://${verbsHost}:0`),
          cinnabar("tcp-link", false, () => `tcp://${verbsHost}:0`),
        ];
  return [
    cinnabar("shm", true, (id) => `shm://cinnabar-bench-${id}`),
    {
      key: "grpc-tcp",
      title: "grpc-js tcp",
      isInQuick: true,
      load: async () => (await import("./grpc.ts")).grpcJs("127.0.0.1:0"),
    },
    {
      key: "net-tcp",
      title: "net tcp",
      isInQuick: true,
      load: async () => (await import("./net.ts")).netMsgpack({ host: "127.0.0.1", port: 0 }),
    },
    cinnabar("net", true, () => "net://127.0.0.1:0"),
    cinnabar("tcp", true, () => "tcp://127.0.0.1:0"),
    {
      key: "grpc-unix",
      title: "grpc-js unix",
      isInQuick: true,
      load: async (id) => (await import("./grpc.ts")).grpcJs(`unix:${socketPath(id)}`),
    },
    {
      key: "net-unix",
      title: "net unix",
      isInQuick: true,
      load: async (id) => (await import("./net.ts")).netMsgpack({ path: socketPath(id) }),
    },
    ...overDevice,
    {
      key: "tcp-sealed",
      title: "Cinnabar tcp, sealed",
      isInQuick: false,
      isSecured: true,
      load: async () => (await import("./cinnabar.ts")).cinnabar("tcp://127.0.0.1:0", true),
    },
    {
      key: "grpc-mtls",
      title: "grpc-js mTLS",
      isInQuick: false,
      isSecured: true,
      load: async () => (await import("./grpc.ts")).grpcJs("127.0.0.1:0", true),
    },
    {
      ...cinnabar("mem", false, (id) => `mem://${id}`),
      isSelfServing: true,
      note: "server and client are in one process and thread",
    },
    nest("tcp", "Nest TCP"),
    nest("grpc", "Nest gRPC"),
    nest("proxy", "Nest over Cinnabar"),
    nest("typed", "Cinnabar client, Nest server"),
    {
      key: "connect",
      title: "connect-node",
      isInQuick: false,
      load: async () => (await import("./connect.ts")).connectNode(),
    },
    {
      key: "trpc",
      title: "tRPC ws",
      isInQuick: false,
      load: async () => (await import("./trpc.ts")).trpc(),
    },
    {
      key: "zeromq-tcp",
      title: "zeromq tcp",
      isInQuick: false,
      load: async () => (await import("./zeromq.ts")).zeromq("tcp://127.0.0.1:*"),
    },
    {
      key: "zeromq-ipc",
      title: "zeromq ipc",
      isInQuick: false,
      load: async (id) => (await import("./zeromq.ts")).zeromq(`ipc://${socketPath(id)}`),
    },
    {
      key: "message-port",
      title: "MessagePort",
      isInQuick: false,
      isSelfServing: true,
      note: "the server is a thread of the client's process",
      load: async () => (await import("./message-port.ts")).messagePort(),
    },
    {
      key: "child-ipc",
      title: "child IPC",
      isInQuick: false,
      isSelfServing: true,
      note: "the server is a child of the client",
      load: async () => (await import("./child-ipc.ts")).childIpc(),
    },
  ];
}

/** @throws Error when there is no contender of that key. */
export async function loadContender(key: string, id: string, verbsHost?: string): Promise<Contender> {
  const entry = contenders(verbsHost).find((one) => one.key === key);
  if (entry === undefined) throw new Error(`there is no contender "${key}"`);
  return entry.load(id);
}
