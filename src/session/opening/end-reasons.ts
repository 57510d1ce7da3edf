import {
  fabricError,
  fabricErrorName,
  noDescriptors,
  peerLacksDescriptors,
} from "../../base/errors/fabric-error.ts";
import { RpcError } from "../../base/errors/rpc-error.ts";
import type { ExchangeRefusal } from "../../security/tls-failure.ts";
import { type ErrorBody, packError, parseError } from "../../wire/fault.ts";
import { frameKind } from "../../wire/frame.ts";
import type { Greeting } from "../../wire/handshake.ts";

/** EPROTONOSUPPORT: the shm ports lay out shared memory in different ways. */
const protocolNotSupported = 93;

/** A message could not be sent to the peer. `status` and `detail` are those of `SendListener`. */
export function sendFailure(
  {
    peerName,
    port,
    transferRefused,
  }: {
    readonly peerName: string;
    readonly port: { readonly provider: string; readonly agent?: string };
    readonly transferRefused: boolean;
  },
  status: number,
  detail = 0,
): RpcError {
  if (transferRefused) return brokenByRefusal(peerName);
  if (status === protocolNotSupported) {
    return new RpcError({
      code: "failed_precondition",
      message: `${peerName} shares memory as shm/${detail}, this process as ${port.agent}: use one version of cinnabar`,
      origin: "fabric",
    });
  }
  const lack = noDescriptors[fabricErrorName(status)];
  return fabricError({
    provider: port.provider,
    op: "fi_send",
    code: status,
    rpcCode: lack === undefined ? "unavailable" : "resource_exhausted",
    message: `${peerName} cannot be reached: ${lack ?? sendObstacles[status] ?? "sending failed"}`,
  });
}

/** The explanations of failed sends, by error number. */
const sendObstacles: Readonly<Record<number, string>> = {
  71: "what listens there does not speak this fabric's protocol", // EPROTO
  87: peerLacksDescriptors, // EUSERS
  101: "there is no route to it", // ENETUNREACH
  104: "the connection was reset; the host dropped it, or a server of another scheme listens there", // ECONNRESET
  105: "it has as many peers over shm as it may, 250", // ENOBUFS
  110: "the connection was not answered", // ETIMEDOUT
  111: "nobody listens there", // ECONNREFUSED
  113: "there is no route to it", // EHOSTUNREACH
};

/** The connection or the peer is gone. */
const lost = (message: string): RpcError => new RpcError({ code: "unavailable", message, origin: "fabric" });

/** The peer has not proven who it is, or no longer. */
const unproven = (message: string): RpcError => new RpcError({ code: "unauthenticated", message });

/** The connection broke because the owner of memory refused a transfer of this side. */
export const brokenByRefusal = (peerName: string): RpcError =>
  lost(`the connection with ${peerName} broke when a transfer was refused`);

/** The connection of a session with nothing open has ended. */
export const disconnected = (peerName: string): RpcError => lost(`the connection with ${peerName} has ended`);

/** The provider reports that the peer is gone. */
export const processGone = (peerName: string): RpcError => lost(`the process of ${peerName} is gone`);

/** `count` messages for a sealed session were not genuine. */
export const forgeries = (peerName: string, count: number): RpcError =>
  lost(
    `${count} messages in the name of ${peerName} were not genuine: somebody on the network path forges them`,
  );

/** The peer has ended the session by a refusal or a goodbye. */
export function closedByPeer(peerName: string, kind: number, word: number, body: unknown): RpcError {
  const said = parseError(word, body);
  const verb = kind === frameKind.refuse ? "refused the session" : "closed the session";
  return new RpcError({
    code: word === 0 ? "unavailable" : said.code,
    message: `${peerName} ${verb}: ${packError(said).m}`,
    origin: "remote",
  });
}

/** `t`: transfers of the sender may still touch the receiver's memory. */
type GoodbyeBody = Pick<ErrorBody, "m"> & { readonly t?: true };

/**
 * The body of a refusal or a goodbye. It fits the shortest message that a peer may ask for, because it cannot be pulled
 * after the end.
 */
export const goodbyeBody = (error: RpcError, touching = false): GoodbyeBody => ({
  m: packError(error).m.slice(0, 1000),
  ...(touching && { t: true }),
});

/** A frame about the session could not be sent. */
export function frameNotSent(peerName: string, cause: Error): RpcError {
  const message = `${peerName} cannot be sent a frame about the session: ${cause.message}`;
  return new RpcError({ code: "resource_exhausted", message, cause });
}

/** The peer violates the protocol. */
export function brokenProtocol(peerName: string, text: string): RpcError {
  return new RpcError({
    code: "internal",
    message: `${peerName} broke the protocol: ${text}`,
    origin: "fabric",
  });
}

/** A request found that its session has ended. */
export function sessionEnded(peerName: string, cause?: RpcError): RpcError {
  return new RpcError({ code: "unavailable", message: `the session with ${peerName} has ended`, cause });
}

/** Made for each call: the caller may call another peer at once, because nothing was executed. */
export function drainingError(who: string, origin: "local" | "remote"): RpcError {
  return new RpcError({
    code: "unavailable",
    message: `${who} is draining and takes no new calls; this one was not executed`,
    origin,
    notExecuted: true,
  });
}

/** A session ended because messages of its peer were lost: during the opening, the welcome. */
export class MessagesLost extends RpcError {
  constructor(peerName: string, count: number) {
    const message = `the connection with ${peerName} broke: ${count} of its messages were lost`;
    super({ code: "unavailable", message, origin: "fabric" });
  }
}

/** A session ended because its peer exceeded the limits of this side. */
export class PeerEvicted extends RpcError {}

/** The peer receives nothing, while more and more frames wait for it. */
export function overrun(peerName: string, waitingBytes: number): RpcError {
  const message = `${peerName} receives nothing: ${waitingBytes} bytes wait to be sent`;
  return new PeerEvicted({ code: "unavailable", message, origin: "fabric" });
}

/** The peer is alive, but moves too little of the long bodies that either side offers. */
export function stalled(peerName: string, stalledMs: number): RpcError {
  const message = `${peerName} moves its long bodies too slowly: one has waited for ${Math.round(stalledMs)} ms, see limits.maxBodyStallMs`;
  return new PeerEvicted({ code: "unavailable", message, origin: "local" });
}

/** The peer sends more than it is entitled to, and faster than this side takes it. */
export function flooded(peerName: string, frames: number): RpcError {
  const message = `${peerName} has ${frames} frames on the way, which is more than its calls need`;
  return new PeerEvicted({ code: "resource_exhausted", message, origin: "local" });
}

/** The session ends because its peer has not proven its identity. */
export class Unproven extends RpcError {
  /** `message`: for both sides. Default: the text of the refusal. */
  constructor(
    readonly refusal: ExchangeRefusal,
    message = refusal.why,
  ) {
    super({ code: "unauthenticated", message, origin: "local" });
  }
}

/** The peer is this engine itself, or replays this engine's messages. */
export const reflected = (): RpcError =>
  unproven(
    "the peer is this engine itself, or plays back what it says; with a pre-shared key that proves nothing",
  );

/** The certificate of the peer has expired. */
export const certificateEnded = (peerName: string, validTo: Date): RpcError =>
  unproven(`the certificate of ${peerName} was valid to ${validTo.toISOString()}`);

/** The peer could not open another session now: it is no longer trusted. */
export const notTrusted = (peerName: string, why: string): RpcError =>
  unproven(`${peerName} is not trusted any more: ${why}`);

/** The peer has not answered its welcome. */
export const welcomeUnanswered = (peerName: string, timeoutMs: number): RpcError =>
  unproven(
    `${peerName} has not shown within ${Math.round(timeoutMs)} ms that it has the keys of the session`,
  );

/** The peer of a connect has not answered. Another hello may be answered. */
export class ConnectSilence extends RpcError {
  /** `nonce`: of the hello that was not answered. */
  constructor(
    peerName: string,
    timeoutMs: number,
    readonly nonce?: Greeting["nonce"],
  ) {
    const message = `${peerName} did not answer within ${Math.round(timeoutMs)} ms; is a server running there?`;
    super({ code: "unavailable", message, origin: "fabric" });
  }
}
