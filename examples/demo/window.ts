/** How much memory a window has: enough to hide the cost of a call, and still within a processor's cache. */
export const windowBytes = 1 << 20;
/** As many files as one pull may bring; so many are then open at once. */
export const maxPieces = 32;

/** A part of a file. */
export interface Piece {
  /** As the catalog names it. */
  readonly path: string;
  readonly offset: number;
  readonly length: number;
}

/** The bytes of all the pieces together. */
export function bytesOf(pieces: readonly Piece[]): number {
  return pieces.reduce((sum, { length }) => sum + length, 0);
}

/** What came of a piece: fewer bytes than were asked for where the file ends, or why it could not be read. */
export interface PieceResult {
  readonly bytes: number;
  readonly problem?: string | undefined;
}

/** Memory that pieces of files are brought into, one load after the other. How they come is what is compared. */
export interface Window extends AsyncDisposable {
  readonly memory: Uint8Array;
  /**
   * Reads the pieces, one behind the other, to the start of the memory. Each takes its requested length. They must fit
   * together: `windowBytes` in all, `maxPieces` of them. Rejects when the server is gone.
   */
  pull(pieces: Piece[], signal: AbortSignal): Promise<readonly PieceResult[]>;
}

/** Makes a window. */
export type OpenWindow = () => Promise<Window>;
