import type { RemoteFile } from "./client.ts";
import { maxPieces, type Piece, windowBytes } from "./window.ts";

/** A part of a file, as it is asked for. */
export interface FilePiece extends Piece {
  readonly file: RemoteFile;
}

/**
 * All bytes of all files, in order, in batches that fit a window: many small files together, a long one in many
 * batches. An empty file is a piece too: the demo also shows that the server can open it.
 */
export function* batchesOf(files: readonly RemoteFile[]): Generator<FilePiece[], undefined> {
  let batch: FilePiece[] = [];
  let room = windowBytes;
  for (const file of files) {
    let offset = 0;
    do {
      const length = Math.min(file.bytes - offset, room);
      batch.push({ file, path: file.path, offset, length });
      offset += length;
      room -= length;
      if (room === 0 || batch.length === maxPieces) {
        yield batch;
        batch = [];
        room = windowBytes;
      }
    } while (offset < file.bytes);
  }
  if (batch.length > 0) yield batch;
}
