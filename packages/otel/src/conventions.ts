import { type RpcCode, RpcError } from "cinnabar/standard";

// The names of OpenTelemetry's conventions for RPC, as they became stable in version 1.45.0. A test compares them with
// `@opentelemetry/semantic-conventions`, so that users need not install it.

/** The value of `rpc.system.name`. */
export const systemName = "cinnabar";

export const attribute = {
  system: "rpc.system.name",
  method: "rpc.method",
  statusCode: "rpc.status_code",
  errorType: "error.type",
  serverAddress: "server.address",
  serverPort: "server.port",
} as const;

export const durationMetric = {
  out: "rpc.client.call.duration",
  in: "rpc.server.call.duration",
} as const;

/** Attributes that the conventions do not have. */
export const own = {
  /** The scheme of the URL: `tcp`, `shm`, `mem` or `verbs`. */
  fabric: "cinnabar.fabric",
  attempts: "cinnabar.attempts",
  transfers: "cinnabar.transfers",
  bytesGot: "cinnabar.bytes_got",
  bytesPut: "cinnabar.bytes_put",
  bytes: "cinnabar.bytes",
  operation: "cinnabar.operation",
  direction: "cinnabar.direction",
  cause: "cinnabar.cause",
  reason: "cinnabar.reason",
  kind: "cinnabar.kind",
  state: "cinnabar.state",
  service: "cinnabar.service",
  lane: "cinnabar.lane",
  /** The NQN of a subsystem and the number of a namespace. */
  disk: "cinnabar.disk",
} as const;

/** The value of `rpc.status_code`: gRPC's upper-case name of a code. */
export function statusWord(code: RpcCode | "ok"): string {
  return code.toUpperCase();
}

/** What a call ended with. */
export function codeOf(error: unknown): RpcCode {
  return error instanceof RpcError ? error.code : "internal";
}

/** The codes that are the server's fault. Others, such as `not_found`, are answers. The same as for gRPC. */
const faultsOfServer: ReadonlySet<RpcCode | "ok"> = new Set([
  "unknown",
  "deadline_exceeded",
  "unimplemented",
  "internal",
  "unavailable",
  "data_loss",
]);

/** Whether a call that ended so counts as an error on this side: for a client each code but `ok`. */
export function isError(direction: "out" | "in", code: RpcCode | "ok"): boolean {
  return direction === "out" ? code !== "ok" : faultsOfServer.has(code);
}
