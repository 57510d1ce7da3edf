import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Contender } from "./contender.ts";
import { cinnabar } from "./peers/cinnabar.ts";
import { grpcJs } from "./peers/grpc.ts";

/** In the order in which each round measures them: every one of ours beside one of theirs. */
export const contenders: readonly Contender[] = [
  cinnabar("cinnabar shm", () => `shm://cinnabar-bench-${process.pid}`),
  grpcJs("grpc-js tcp", () => "127.0.0.1:0"),
  cinnabar("cinnabar tcp", () => "tcp://127.0.0.1:0"),
  grpcJs("grpc-js unix", () => `unix:${join(tmpdir(), `cinnabar-bench-${process.pid}.sock`)}`),
];
