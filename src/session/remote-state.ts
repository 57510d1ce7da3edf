import { senderState } from "../wire/frame.ts";

/** What the peer says of itself in its pings and pongs. */
export class RemoteState {
  /** It takes no new calls. */
  drains = false;
  /** The last that was heard was said in its stead: a sign of life, but no answer, for its thread computes. */
  busy = false;

  /** Takes a ping's or a pong's word. Whether it is news that the peer drains. */
  onWord(state: number): boolean {
    this.busy = state === senderState.busy;
    if (this.busy) return false;
    const told = state === senderState.draining && !this.drains;
    this.drains = state === senderState.draining;
    return told;
  }
}
