import type { QueuePairAttributes } from "./port-report.ts";

/** An event of the RDMA connection manager, as `rdma_get_cm_event` gave it to libfabric. */
export interface NativeConnectionEvent {
  /** enum rdma_cm_event_type. */
  readonly event: number;
  readonly status: number;
  readonly device: string;
  readonly local: { readonly host: string; readonly port: number } | null;
  readonly remote: { readonly host: string; readonly port: number } | null;
  /** null until the connection is established. */
  readonly queuePair: QueuePairAttributes | null;
}

/** The addon's functions for RDMA devices, beside their ports. */
export interface VerbsAddon {
  /**
   * Calls `onEvents` on this thread whenever the RDMA connection manager has told something, from now on and for as
   * long as the thread lives; again without an effect. Returns "", or why that cannot be had here, or is not asked for
   * (`CINNABAR_PATCHES`). docs/design/verbs-connections.md tells how it works.
   */
  watchConnections(onEvents: () => void): string;
  /**
   * What has come since the last call, oldest first, 1024 at most; `lost` more had no room. `onEvents` must call it.
   */
  takeConnectionEvents(): { readonly events: readonly NativeConnectionEvent[]; readonly lost: number };
  /**
   * Dumps what the kernel's RDMA subsystem has (RDMA_NLDEV_CMD_…), of one device or of all: its netlink messages in a
   * row, or a negated error number.
   */
  askRdma(command: number, device?: number): Uint8Array | number;
}
