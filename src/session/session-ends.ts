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

/** Why a session ends whose peer takes nothing, while ever more waits for it. */
export function overrun(peerName: string, waitingBytes: number): RpcError {
  return new RpcError({
    code: "unavailable",
    message: `${peerName} does not take what it is sent: ${waitingBytes} bytes wait`,
    origin: "fabric",
  });
}

/** Why a session ends whose peer the provider says is gone. */
export function processGone(peerName: string): RpcError {
  return new RpcError({
    code: "unavailable",
    message: `the process of ${peerName} is gone`,
    origin: "fabric",
  });
}
