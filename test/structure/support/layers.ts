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

/**
 * The rooms of `src/` and the parts of the session, each with the file that a newcomer opens first. The first comment of
 * that file says what the room is for, what it promises to those above, and what it takes from those below.
 */
export const roomFiles: Readonly<Record<string, string>> = {
  engine: "engine/engine.ts",
  connect: "connect/connector.ts",
  client: "client/client.ts",
  server: "server/dispatcher.ts",
  session: "session/connection/session.ts",
  "session/streams": "session/streams/streams.ts",
  "session/calls": "session/calls/exchange.ts",
  "session/liveness": "session/liveness/heartbeat.ts",
  "session/opening": "session/opening/tls-handshake.ts",
  "session/channel": "session/channel/outbox.ts",
  contract: "contract/service.ts",
  transfer: "transfer/transfer.ts",
  call: "call/outgoing-call.ts",
  memory: "memory/region.ts",
  security: "security/security-options.ts",
  wire: "wire/message.ts",
  fabric: "fabric/port.ts",
  base: "base/errors/rpc-error.ts",
};
