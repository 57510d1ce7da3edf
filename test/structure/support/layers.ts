/**
 * The layers of `src/`, top to bottom. Each is a folder, but the first two, which are files of `src/`. A folder below a
 * room is a layer of its own. A file may import from its own layer and from those below it.
 * `docs/design/layers.md` explains the order.
 */
export const layers = [
  "index",
  "standard",
  "inspect",
  "options",
  "testing",
  "native",
  "engine",
  "connect",
  "server",
  "client",
  "session/streams",
  "contract",
  "session/calls",
  "session/connection",
  "session/liveness",
  "session/opening",
  "session/channel",
  "transfer/handles",
  "transfer/sealed",
  "transfer",
  "transfer/control",
  "call",
  "memory",
  "security",
  "security/sealing",
  "wire/metadata",
  "wire",
  "fabric",
  "fabric/rdma",
  "fabric/libfabric",
  "base/flow",
  "base/time",
  "base/options",
  "base/observe",
  "base/errors",
] as const;

/** Files longer than the alarm of `structure.test.ts`, each with the reason why it is better whole. */
export const longFiles: Readonly<Record<string, string>> = {};
