/** What an engine has counted since it opened. Plain numbers, read at any time. */
export interface Counters {
  /** Calls made, and how they ended for their callers. */
  callsStarted: number;
  callsSucceeded: number;
  callsFailed: number;
  /** Calls that had to wait for a place in their session's window, and those that were not let wait, or were put out by more urgent ones. */
  callsWaited: number;
  callsNotAdmitted: number;
  /** Requests served, and how they ended. */
  requestsStarted: number;
  requestsSucceeded: number;
  requestsFailed: number;
  /** Handlers' results that came after their call had ended. */
  lateResults: number;
  /** Handlers that had not ended when their call's time was up. Those that `lateResults` does not count in the end never ended. */
  overdueHandlers: number;
  /** Attempts after a call's first: retries after a failure, hedges beside a slow one, and retries that the budget did not allow. */
  retries: number;
  hedges: number;
  retriesWithheld: number;
  /** Requests that were answered from what an earlier attempt had brought, or joined one that was still running. */
  replays: number;
  messagesSent: number;
  messagesReceived: number;
  framesSent: number;
  framesReceived: number;
  /** Bodies that travelled by RMA because they did not fit a message. */
  bodiesOffered: number;
  bodiesPulled: number;
  /** Bytes moved by `get` and `put`. */
  bytesGot: number;
  bytesPut: number;
  /** Sessions that have begun, those of them that the fabric, silence or broken bytes have ended, and those that one of the sides has closed. */
  sessionsOpened: number;
  sessionsLost: number;
  sessionsClosed: number;
  /** Sessions refused at the handshake, by us. */
  sessionsRefused: number;
  /** Messages and frames that broke the protocol; each closed its session where there was one. */
  malformed: number;
  /** Messages for sessions that are no more: a late peer, or a predecessor's. */
  strays: number;
  /** Answers to calls that are no more. */
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
    hedges: 0,
    retriesWithheld: 0,
    replays: 0,
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
    malformed: 0,
    strays: 0,
    lateAnswers: 0,
  };
}
