import type { RpcError } from "../../base/errors/rpc-error.ts";
import type { Clock } from "../../base/time/clock.ts";
import type { CallOperations } from "../../call/call-operations.ts";
import type { Port } from "../../fabric/port.ts";
import type { SealedMover } from "./sealed-bulk.ts";

/**
 * The time in which transfers may use a peer's memory. An incoming call is such a scope: the regions that came with it
 * may be used until it ends.
 */
export interface TransferScope {
  /** The number of the call; undefined if it is no call. */
  readonly id?: number | undefined;
  readonly open: boolean;
  /** When the scope ends at the latest, on the engine's clock. */
  readonly deadlineMs: number;
  /** Fires when the scope ends against the will of its user; the reason is an RpcError. */
  readonly signal: AbortSignal;
  /** Records failures of operations that are not awaited; undefined where no report is made. */
  readonly operations?: CallOperations | undefined;
  /** Throws the error that ended the scope. */
  assertOpen(): void;
  /**
   * A transfer begins. The scope's end is sent to the peer after the transfer has ended. Throws as `assertOpen`.
   */
  beginTransfer(): void;
  endTransfer(): void;
}

/** The way to the peer that owns a remote region. */
export interface TransferRoute {
  readonly port: Port;
  readonly address: number;
  readonly clock: Clock;
  /** Makes progress soon: work was posted. */
  wakeProgress(): void;
  /** A transfer has ended; `bytes` have certainly moved. */
  onLanded(op: "get" | "put", bytes: number): void;
  /** Present where bulk travels sealed: then no one-sided access to a region is possible. */
  readonly sealedMover?: SealedMover | undefined;
  /** Asks the region's owner why its provider rejected a transfer. Undefined when the owner knows no reason. */
  explain?: ((refused: RefusedTransfer) => Promise<RpcError | undefined>) | undefined;
}

/**
 * A transfer that a provider rejected without a reason: bytes `offset` to `offset + bytes` of the grant with this key.
 */
export interface RefusedTransfer {
  readonly key: bigint;
  readonly needed: "read" | "write";
  readonly offset: number;
  readonly bytes: number;
}
