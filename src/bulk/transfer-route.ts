import type { Clock } from "../call/clock.ts";
import type { RpcError } from "../errors/rpc-error.ts";
import type { Port } from "../fabric/port.ts";

/** The way to the peer a remote region belongs to. */
export interface TransferRoute {
  readonly port: Port;
  readonly address: number;
  readonly clock: Clock;
  /** Makes progress soon: something was posted. */
  kick(): void;
  /** A transfer is over, so many bytes have surely moved. */
  onLanded(op: "get" | "put", bytes: number): void;
  /** Asks the region's owner why its provider refused a transfer. Nothing, when it knows no reason. */
  explain?: ((refused: RefusedTransfer) => Promise<RpcError | undefined>) | undefined;
}

/** What a provider has refused without a reason: bytes `offset` to `offset + bytes` of the loan by this key. */
export interface RefusedTransfer {
  readonly key: bigint;
  readonly needed: "read" | "write";
  readonly offset: number;
  readonly bytes: number;
}
