import { fabricError } from "../base/errors/fabric-error.ts";
import type { RpcError } from "../base/errors/rpc-error.ts";
import type { NativeError, QueuePairAddon } from "./libfabric/addon.ts";
import { requireLibfabric } from "./libfabric/libfabric.ts";
import { openError } from "./open-error.ts";
import { pinObstacle } from "./rdma/pinned-memory.ts";

const noMemory = 12; // ENOMEM

/**
 * The addon's functions for connected queue pairs of RDMA devices, for packages that speak the protocols of others.
 * They check no argument: a number that is not open is refused, and memory must be of `allocate`.
 *
 * @throws RpcError `unavailable` without the addon or libfabric, with the paths that were tried
 */
export function queuePairAddon(): QueuePairAddon {
  return requireLibfabric();
}

/** A function of the addon that failed. */
export interface QueuePairFailure {
  /** The operation in libfabric's terms, such as "fi_mr_reg". */
  readonly op: string;
  /** libfabric's error number; the sign does not matter. */
  readonly code: number;
  readonly name?: string | undefined;
  readonly message?: string | undefined;
  /** Bytes that were to be registered. */
  readonly bytes?: number | undefined;
}

/** The error of a failure, of origin "fabric". A failed registration also reports how much the process may pin. */
export function queuePairError({ bytes, ...failure }: QueuePairFailure): RpcError {
  const obstacle =
    bytes !== undefined && Math.abs(failure.code) === noMemory ? pinObstacle(bytes) : undefined;
  return fabricError({ provider: "verbs", ...failure, message: obstacle ?? failure.message });
}

/** Why `listenQueuePairs` failed, and the user's remedy. */
export function queuePairListenError(error: NativeError, host: string, port: number): RpcError {
  return openError(error, { scheme: "verbs", host, port, name: "" });
}
