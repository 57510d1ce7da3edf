/** Counters of one engine since it opened. Plain numbers; reading them costs nothing. */
export interface Counters {
  /** Outgoing calls: started, and how they ended for their callers. */
  callsStarted: number;
  callsSucceeded: number;
  callsFailed: number;
  /**
   * Outgoing calls that waited for the in-flight window, and those that were rejected by a full queue or replaced by a
   * `control` call.
   */
  callsWaited: number;
  callsNotAdmitted: number;
  /** Incoming requests: started, and how they ended. */
  requestsStarted: number;
  requestsSucceeded: number;
  requestsFailed: number;
  /** Handler results that arrived after their call had ended, and were discarded. */
  lateResults: number;
  /** Handlers that still ran at their call's deadline. `overdueHandlers - lateResults` of them have not ended yet. */
  overdueHandlers: number;
  /** Retries after a failed attempt, and retries that the retry budget rejected. */
  retries: number;
  retriesWithheld: number;
  /** Requests answered from the replay cache, or joined to an execution that still ran. */
  replays: number;
  /** Items of streams, in either direction. */
  itemsSent: number;
  itemsReceived: number;
  messagesSent: number;
  messagesReceived: number;
  framesSent: number;
  framesReceived: number;
  /** Rendezvous bodies: too long for a message, so that the receiver pulled them by RMA. */
  bodiesOffered: number;
  bodiesPulled: number;
  /** Bytes that `get` and `put` moved. */
  bytesGot: number;
  bytesPut: number;
  /** Sessions opened; of those, lost (connection lost, peer silent, malformed bytes) and closed by either side. */
  sessionsOpened: number;
  sessionsLost: number;
  sessionsClosed: number;
  /** Sessions that this engine refused at the handshake. */
  sessionsRefused: number;
  /** Sessions that this engine ended because the peer exceeded a limit: it stalled, flooded, or received nothing. */
  sessionsEvicted: number;
  /**
   * Messages of peers that the fabric lost, according to their numbers. Each loss ends its session, and counts for at
   * most 1,024 messages.
   */
  messagesLost: number;
  /** Messages and frames that violate the protocol. Each closes its session, if it has one. */
  malformed: number;
  /** Requests and answers of peers that were rejected because they would take too much memory once decoded. */
  valuesTooLarge: number;
  /** Messages for sessions that have ended. They are dropped. */
  strays: number;
  /**
   * Messages for sealed sessions that are not genuine, or not sealed: damaged, forged, or injected on the path. They are
   * dropped.
   */
  messagesForged: number;
  /** Messages for sealed sessions that have arrived before, or too late. They are dropped. */
  messagesRepeated: number;
  /** Keepalives for sealed sessions that are not genuine, or have arrived before. They are dropped. */
  keepalivesRefused: number;
  /** Responses to calls that have ended. They are dropped. */
  lateAnswers: number;
}

export function newCounters(): Counters {
  return {
    callsStarted: 0,
    callsSucceeded: 0,
    callsFailed: 0,
    callsWaited: 0,
    callsNotAdmitted: 0,
    requestsStarted: 0,
    requestsSucceeded: 0,
    requestsFailed: 0,
    lateResults: 0,
    overdueHandlers: 0,
    retries: 0,
    retriesWithheld: 0,
    replays: 0,
    itemsSent: 0,
    itemsReceived: 0,
    messagesSent: 0,
    messagesReceived: 0,
    framesSent: 0,
    framesReceived: 0,
    bodiesOffered: 0,
    bodiesPulled: 0,
    bytesGot: 0,
    bytesPut: 0,
    sessionsOpened: 0,
    sessionsLost: 0,
    sessionsClosed: 0,
    sessionsRefused: 0,
    sessionsEvicted: 0,
    messagesLost: 0,
    malformed: 0,
    valuesTooLarge: 0,
    strays: 0,
    messagesForged: 0,
    messagesRepeated: 0,
    keepalivesRefused: 0,
    lateAnswers: 0,
  };
}
