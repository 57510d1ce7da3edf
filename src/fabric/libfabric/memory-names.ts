import { existsSync, readFileSync } from "node:fs";
import type { MemoryScheme } from "./url.ts";

/** The URL at which somebody of this host listens under the name by the other scheme of shared memory, if any. */
export function listenerOfOtherScheme(scheme: MemoryScheme, name: string): string | undefined {
  const user = process.geteuid?.();
  if (scheme === "shm")
    return existsSync(`/dev/shm/cinnabar.${user}.${name}`) ? `ofi+shm://${name}` : undefined;
  return socketNames().includes(`@cinnabar/${user}/${name}`) ? `shm://${name}` : undefined;
}

/** The last words of the lines of /proc/net/unix: the names of sockets, those of abstract ones after an "@". */
function socketNames(): string[] {
  try {
    return readFileSync("/proc/net/unix", "utf8")
      .split("\n")
      .map((line) => line.slice(line.lastIndexOf(" ") + 1));
  } catch {
    return [];
  }
}
