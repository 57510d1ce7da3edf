import type { Exchange } from "./exchange.ts";

/**
 * Numbers of calls at one moment. Each attempt of a retried call counts. A call that waits for a connection
 * counts nowhere; `engine.calls()` lists it.
 */
export interface CallsGauge {
  /**
   * Outgoing calls that have been sent and that the peer has not answered. A call that its caller has given up counts
   * until the peer confirms its end, and a one-way call until the peer acknowledges it.
   */
  readonly out: number;
  /** Outgoing calls that have not been sent, and wait for a place in the window of their session. */
  readonly waiting: number;
  /** Incoming calls that have not been answered. */
  readonly in: number;
}

/** The traffic of an engine with all its peers, of a peer with its lanes, or of one backend. */
export interface Traffic {
  /** Calls of users: unary calls, streams and one-way calls. */
  readonly calls: CallsGauge;
  /** Requests of the library itself, such as put notifications and checksums. They are in no window. */
  readonly controlRequests: CallsGauge;
  /** The approximate bytes of the inputs of waiting calls. */
  readonly waitingBytes: number;
  /** Bytes of encoded frames that wait for room to be sent. */
  readonly queuedBytes: number;
}

/** The traffic of all these sessions together. */
export function trafficOf(exchanges: Iterable<Exchange>): Traffic {
  const calls = { out: 0, waiting: 0, in: 0 };
  const controlRequests = { out: 0, waiting: 0, in: 0 };
  let waitingBytes = 0;
  let queuedBytes = 0;
  for (const { outgoing, incoming, session } of exchanges) {
    const { waiting } = outgoing;
    calls.out += outgoing.usersSize;
    calls.waiting += waiting.size;
    calls.in += incoming.usersSize;
    controlRequests.out += outgoing.size - outgoing.usersSize;
    controlRequests.waiting += outgoing.waitingControlSize;
    controlRequests.in += incoming.size - incoming.usersSize;
    waitingBytes += waiting.bytes;
    queuedBytes += session.outbox.queuedBytes;
  }
  return { calls, controlRequests, waitingBytes, queuedBytes };
}
