import { createHash } from "node:crypto";
import { readFileSync, readlinkSync, statSync } from "node:fs";

/**
 * Names what processes must share to use shared memory with each other: the running kernel, the file system with the
 * segments, and the process ids. Undefined where the system does not report it.
 */
export function hostIdentity(): string | undefined {
  identity ??= { name: read() };
  return identity.name;
}

let identity: { readonly name: string | undefined } | undefined;

function read(): string | undefined {
  try {
    const boot = readFileSync("/proc/sys/kernel/random/boot_id", "latin1").trim();
    const parts = [boot, statSync("/dev/shm").dev, readlinkSync("/proc/self/ns/pid")];
    return createHash("sha256").update(parts.join(" ")).digest("hex").slice(0, 16);
  } catch {
    return undefined;
  }
}
