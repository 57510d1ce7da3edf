import { readFileSync } from "node:fs";
import { join } from "node:path";

/** What this process may lock in memory, and has: every registration with an RDMA device counts. */
export interface LockedMemory {
  /** Bytes pinned for devices now, by everything in this process. */
  readonly pinnedBytes: number;
  /** RLIMIT_MEMLOCK (`ulimit -l`); null for no limit. */
  readonly limitBytes: number | null;
  /** How many more may be pinned; null for any number: without a limit, or with the right to exceed it. */
  readonly leftBytes: number | null;
  /** Whether the process has CAP_IPC_LOCK, so that the limit does not bind it. */
  readonly mayExceedLimit: boolean;
}

const capIpcLock = 1n << 14n;

/** What /proc says of this process. `process` is its folder there. */
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

function textOf(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
}
