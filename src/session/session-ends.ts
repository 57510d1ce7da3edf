import { fabricError } from "../errors/fabric-error.ts";
import { RpcError } from "../errors/rpc-error.ts";
import { type ErrorBody, packError, parseError } from "../wire/fault.ts";
import { frameKind } from "../wire/frame.ts";

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

/** Why a session ends whose connection broke because the owner of memory refused a transfer of ours. */
export function brokenByRefusal(peerName: string): RpcError {
  return new RpcError({
    code: "unavailable",
    message: `the connection with ${peerName} broke when a transfer was refused`,
    origin: "fabric",
  });
}

/** Why a session ends whose peer has said a last word: a refusal or a goodbye. */
export function farewell(peerName: string, kind: number, word: number, body: unknown): RpcError {
  const said = parseError(word, body);
  const verb = kind === frameKind.refuse ? "refused the session" : "closed the session";
  return new RpcError({
    code: word === 0 ? "unavailable" : said.code,
    message: `${peerName} ${verb}: ${packError(said).m}`,
    origin: "remote",
  });
}

/** What a refusal or a goodbye says. Fits the shortest message a peer may ask for: nobody will be there to let it be pulled. */
export const lastWords = (error: RpcError): ErrorBody => ({ m: packError(error).m.slice(0, 1000) });

/** Why a session ends whose peer does not keep to the protocol. */
export function brokenProtocol(peerName: string, text: string): RpcError {
  return new RpcError({
    code: "internal",
    message: `${peerName} broke the protocol: ${text}`,
    origin: "fabric",
  });
}

/** Why a request goes nowhere: its session has ended before. */
export function sessionEnded(peerName: string): RpcError {
  return new RpcError({
    code: "unavailable",
    message: `the session with ${peerName} has ended`,
    origin: "local",
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
