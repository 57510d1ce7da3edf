import { Engine, type EngineOptions, implement, RpcError } from "cinnabar/standard";
import { Links } from "./links.ts";
import { Packets } from "./packets-service.ts";
import type { OpenTransport } from "./transport.ts";

/** How an engine of a detector is opened. */
export interface FabricOptions extends Pick<EngineOptions, "security"> {
  /** A message that has not left after this time is lost: its sender has gone on. In milliseconds. */
  readonly packetTimeoutMs: number;
}

/** Others that are silent while messages to them are open are found lost after this time at least. */
const minHeartbeatMs = 1000;

/** What strangers can make the engine hold: a detector's messages have some hundred bytes. */
const limits = { maxBodyBytes: 4096, maxRequests: 256, maxQueuedBytes: 64 * 1024 };

/**
 * One-way calls of an engine of its own, over any fabric. Connections open with the first message to a member. If a
 * connection fails or ends, its messages are lost; the next message tries again.
 */
export const openFabric =
  ({ packetTimeoutMs, security }: FabricOptions): OpenTransport =>
  async (address, { onBytes, onSendError }) => {
    const engine = await Engine.open({
      listen: address,
      serve: [implement(Packets, { packet: (bytes) => onBytes(bytes) })],
      // Pings only peers with open one-way calls. A living peer leaves none open.
      heartbeatMs: Math.max(minHeartbeatMs, 2 * packetTimeoutMs),
      // The thread never computes for long, and a member that does not run must be noticed.
      maxStallMs: 0,
      measureLatency: false,
      limits,
      onHandlerError,
      ...(security && { security }),
    });
    const links = new Links(engine, packetTimeoutMs, onSendError);
    return {
      get connections() {
        return engine.stats().sessions;
      },
      send: (to, bytes) => links.send(to, bytes),
      flush: () => links.flush(),
      close: () => engine.close(),
      ...(security && { reloadSecurity: () => engine.reloadSecurity() }),
    };
  };

/** What a peer sends wrongly is refused, and no fault here. All others are faults of this package, and end the thread. */
function onHandlerError(error: unknown): void {
  if (error instanceof RpcError) return;
  setImmediate(() => {
    throw error;
  });
}
