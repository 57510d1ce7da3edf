import { fabricError } from "../errors/fabric-error.ts";
import { RpcError } from "../errors/rpc-error.ts";

/** EPROTONOSUPPORT: the shm ports have met and found that they cannot read each other's memory. */
const protocolNotSupported = 93;

/** Why a session ends whose peer could not be sent a message; `status` is libfabric's. */
export function sendFailure(peerName: string, provider: string, status: number): RpcError {
  if (status === protocolNotSupported) {
    return new RpcError({
      code: "failed_precondition",
      message: `${peerName} runs another version of libfabric; over shm both sides need the same`,
      origin: "fabric",
    });
  }
  return fabricError({
    provider,
    op: "fi_send",
    code: status,
    rpcCode: "unavailable",
    message: `${peerName} cannot be reached: sending failed`,
  });
}
