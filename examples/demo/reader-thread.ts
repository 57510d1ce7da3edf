// A thread that reads files for the server: one message for many files. Asynchronous reading would take three turns of
// Node's thread pool for each file, which cost more than reading a small file does.
import { closeSync, openSync, readSync } from "node:fs";
import { join } from "node:path";
import { parentPort, workerData } from "node:worker_threads";
import { describe } from "./lifetime.ts";
import type { Piece, PieceResult } from "./window.ts";

/** What the thread is asked for. It answers, in order, with the results of the pieces. */
export interface ReadRequest {
  readonly pieces: readonly Piece[];
  /** Shared with the thread that asks. */
  readonly buffer: Uint8Array;
}

const root: string = workerData;
parentPort?.on("message", ({ pieces, buffer }: ReadRequest) => {
  let end = 0;
  const results = pieces.map((piece) => {
    const start = end;
    end += piece.length;
    return readPiece(piece, buffer.subarray(start, end));
  });
  parentPort?.postMessage(results);
});

/** Fills the target with the piece, and with zeros where the file ends before. */
function readPiece({ path, offset }: Piece, target: Uint8Array): PieceResult {
  let bytes = 0;
  try {
    const file = openSync(join(root, path), "r");
    try {
      while (bytes < target.byteLength) {
        const bytesRead = readSync(file, target, bytes, target.byteLength - bytes, offset + bytes);
        if (bytesRead === 0) break;
        bytes += bytesRead;
      }
    } finally {
      closeSync(file);
    }
    return { bytes };
  } catch (error) {
    return { bytes, problem: describe(error) };
  } finally {
    target.fill(0, bytes);
  }
}
