/** Memory that a peer may use for the time of a call. */
export interface Grant {
  readonly bytes: number;
  /** What the peer may use. Other grants may be of the same memory. */
  readonly memory: readonly Uint8Array[];
  /** The peer has no access to the memory itself: it asks for the bytes. The grant may end at any time. */
  readonly isByRequest?: boolean | undefined;
  /** Nobody waits for the call any more, but the peer has not said that it is off the memory. */
  onGivenUp?(): void;
  /**
   * The session ended, and the peer may still touch the memory: it is released when that is known to be over, if ever.
   */
  onHeld?(): void;
  /**
   * The peer may not use the memory any more. `onReleased` is called when no access can be in progress. Where the port
   * cannot tell that (`revokesKeys`), only the peer's own word may be the reason to call `release`.
   */
  release(onReleased?: () => void): void;
}

/** What a grant does beside what it was made for. */
export type GrantEnds = Pick<Grant, "release" | "onHeld">;

/** The grant, with other ends that call its own. */
export function withEnds(grant: Grant, { release, onHeld }: GrantEnds): Grant {
  return {
    bytes: grant.bytes,
    memory: grant.memory,
    isByRequest: grant.isByRequest,
    onGivenUp: () => grant.onGivenUp?.(),
    onHeld: onHeld ?? (() => grant.onHeld?.()),
    release,
  };
}
