/**
 * The layers of `src/`, top to bottom; each is a folder but the first, which is `src/index.ts`. A file may import from its own layer and
 * from those below it. `docs/design/layers.md` says why the order is this one.
 */
export const layers = [
  "index",
  "lanes",
  "engine",
  "balance",
  "client",
  "server",
  "contract",
  "memory",
  "session",
  "bulk",
  "call",
  "wire",
  "flow",
  "fabric",
  "observe",
  "errors",
] as const;

/** Files longer than the alarm of 500 lines, each with the reason why it is better whole. */
export const longFiles: Readonly<Record<string, string>> = {};
