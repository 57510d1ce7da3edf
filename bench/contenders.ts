import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Contender } from "./contender.ts";
import { cinnabar } from "./peers/cinnabar.ts";
import { grpcJs } from "./peers/grpc.ts";
import { netMsgpack } from "./peers/net.ts";

const socketPath = (name: string) => join(tmpdir(), `cinnabar-bench-${process.pid}-${name}.sock`);

/** In the order in which each round measures them: every one of ours beside theirs. */
export const contenders: readonly Contender[] = [
  cinnabar("cinnabar shm", () => `shm://cinnabar-bench-${process.pid}`),
  grpcJs("grpc-js tcp", () => "127.0.0.1:0"),
  netMsgpack("net tcp", () => ({ host: "127.0.0.1", port: 0 })),
  cinnabar("cinnabar tcp", () => "tcp://127.0.0.1:0"),
  grpcJs("grpc-js unix", () => `unix:${socketPath("grpc")}`),
  netMsgpack("net unix", () => ({ path: socketPath("net") })),
];

/** Which of theirs each of ours is held against, by the name that the ratio has for it. Over shm that is whichever of theirs is faster: their own local socket. */
export const comparisons = [
  { ours: "cinnabar shm", as: "shm", theirs: "grpc-js unix", beside: "grpc" },
  { ours: "cinnabar shm", as: "shm", theirs: "net unix", beside: "unix" },
  { ours: "cinnabar shm", as: "shm", theirs: "net tcp", beside: "net" },
  { ours: "cinnabar tcp", as: "tcp", theirs: "grpc-js tcp", beside: "grpc" },
  { ours: "cinnabar tcp", as: "tcp", theirs: "net tcp", beside: "net" },
] as const;
