/** A frame's body as it stands in a message or, once pulled, in memory of its own. */
export interface Body {
  readonly bytes: Buffer;
  readonly start: number;
  readonly end: number;
  /** Decoded binary may be views of the bytes. */
  readonly own: boolean;
}

/** Status of a body that was not pulled because the pull budget is spent. */
export const noRoom = -1;

/** What decoding returns after it has ended the session for a malformed body. */
export const malformed = Symbol("malformed");
