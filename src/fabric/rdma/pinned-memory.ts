import { release } from "node:os";
import { join } from "node:path";
import { textOf } from "./devices.ts";

/** Locked memory of this process and its limit. Every registration with an RDMA device counts. */
export interface LockedMemory {
  /** Bytes that are pinned for devices now, by all code of this process. */
  readonly pinnedBytes: number;
  /** RLIMIT_MEMLOCK (`ulimit -l`); null for no limit. */
  readonly limitBytes: number | null;
  /** Bytes that can still be pinned; null where nothing bounds them. */
  readonly leftBytes: number | null;
  /** Whether the process has CAP_IPC_LOCK and may exceed the limit. */
  readonly mayExceedLimit: boolean;
}

const capIpcLock = 1n << 14n;

/** Reads the locked memory of a process from `/proc`. `process` is its folder there. */
export function lockedMemory(process = "/proc/self"): LockedMemory {
  const status = textOf(join(process, "status"));
  const pinnedBytes = Number(/^VmPin:\s*(\d+) kB$/m.exec(status)?.[1] ?? 0) * 1024;
  const capabilities = BigInt(`0x${/^CapEff:\s*([0-9a-f]+)$/m.exec(status)?.[1] ?? "0"}`);
  const limit = /^Max locked memory\s+(\S+)/m.exec(textOf(join(process, "limits")))?.[1];
  const limitBytes = limit === undefined || limit === "unlimited" ? null : Number(limit);
  const mayExceedLimit = (capabilities & capIpcLock) !== 0n;
  const isBound = limitBytes !== null && !mayExceedLimit;
  return {
    pinnedBytes,
    limitBytes,
    leftBytes: isBound ? Math.max(0, limitBytes - pinnedBytes) : null,
    mayExceedLimit,
  };
}

/** Why so many bytes cannot be pinned, and the remedy; undefined where the limit allows them. */
export function pinObstacle(bytes: number): string | undefined {
  const { pinnedBytes, limitBytes, leftBytes } = lockedMemory();
  if (leftBytes === null || bytes <= leftBytes) return undefined;
  return (
    `${bytes} bytes cannot be registered: the process has pinned ${pinnedBytes} of at most ${limitBytes} bytes ` +
    "(RLIMIT_MEMLOCK). Raise the limit with `ulimit -l`, or release memory"
  );
}

/**
 * Protection of pinned memory across fork(2). "kernel": Linux 5.12 and later copies pinned pages for the child.
 * "libibverbs": ibv_fork_init(3) protects them; the addon requests it before libfabric loads. "none": after a fork,
 * data that peers write may land in the child's copy.
 */
export type ForkSafety = "kernel" | "libibverbs" | "none";

export function forkSafety(
  kernel: string = release(),
  env: Readonly<Record<string, string | undefined>> = process.env,
): ForkSafety {
  const [major = 0, minor = 0] = kernel.split(".").map(Number.parseFloat);
  if (major > 5 || (major === 5 && minor >= 12)) return "kernel";
  return env.RDMAV_FORK_SAFE !== undefined || env.IBV_FORK_SAFE !== undefined ? "libibverbs" : "none";
}
