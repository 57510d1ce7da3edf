import { release } from "node:os";

/**
 * Who keeps memory that is pinned for an RDMA device from being lost when this process starts another: the kernel, from 5.12 on; before that libibverbs, if it was
 * asked to before it saw its first device (the addon does so as it loads libfabric); or nobody, and then what peers write may go to the child's copy.
 */
export type ForkSafety = "kernel" | "libibverbs" | "nobody";

export function forkSafety(
  kernel: string = release(),
  env: Readonly<Record<string, string | undefined>> = process.env,
): ForkSafety {
  const [major = 0, minor = 0] = kernel.split(".").map(Number.parseFloat);
  if (major > 5 || (major === 5 && minor >= 12)) return "kernel";
  return env.RDMAV_FORK_SAFE !== undefined || env.IBV_FORK_SAFE !== undefined ? "libibverbs" : "nobody";
}
