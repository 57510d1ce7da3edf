/** Who is told what becomes of the messages: the session. */
export interface OutboxListener {
  /** Whether somebody looks whether the peer lives. */
  readonly isWatched: boolean;
  /** The longest body that both sides take, in bytes. */
  readonly bodyLimit: number;
  /** Something is held from now on: it might wait for ever, if the peer has died while nothing was open. */
  watch(): void;
  /** A message could not be delivered. */
  onSendFailed(status: number): void;
  onMessagePosted(frames: number): void;
  /** Requests are taken again, after they were not for a while. */
  onRoom(): void;
  /** The peer takes so little of what it is sent that more waits than an honest peer can cause. */
  onOverrun(waitingBytes: number): void;
  /** The outbox is closed and its last message has left. */
  onDrained(): void;
}
