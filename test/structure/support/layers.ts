/**
 * The layers of `src/`, top to bottom; each is a folder but the first two, which are files of `src/`. A file may import from
 * its own layer and from those below it. `docs/design/layers.md` says why the order is this one.
 */
export const layers = [
  "index",
  "standard",
  "lanes",
  "engine",
  "peers",
  "balance",
  "client",
  "server",
  "streams",
  "contract",
  "exchange",
  "connection",
  "opening",
  "byte-stream",
  "handles",
  "sealed-bulk",
  "transfer",
  "control",
  "middleware",
  "call",
  "memory",
  "security",
  "sealing",
  "metadata",
  "wire",
  "fabric",
  "rdma",
  "libfabric",
  "flow",
  "time",
  "options",
  "observe",
  "errors",
] as const;

/** Files longer than the alarm of `structure.test.ts`, each with the reason why it is better whole. */
export const longFiles: Readonly<Record<string, string>> = {};
