import { createHash, type Hash } from "node:crypto";
import type { FilePiece } from "./batches.ts";
import type { RemoteFile } from "./client.ts";
import type { References } from "./reference.ts";
import type { PieceResult, Window } from "./window.ts";

export interface PulledFile {
  readonly path: string;
  readonly bytes: number;
  /** From the request of its first piece until its hash, beside the others that were under way. */
  readonly elapsedMs: number;
  readonly pulls: number;
}

/** What one pull brought. */
export interface PulledBatch {
  readonly window: Window;
  readonly batch: readonly FilePiece[];
  readonly results: readonly PieceResult[];
  /** When it was asked for. */
  readonly startedMs: number;
}

/** A file of which some pieces have arrived. */
interface Arriving {
  readonly hash: Hash;
  readonly startedMs: number;
  bytes: number;
  pulls: number;
  problem?: string | undefined;
}

/** Hashes files as their pieces arrive, which must be in order, and compares each hash with the disk's. */
export class Verifier {
  /** Those that are complete. */
  readonly files: PulledFile[] = [];
  /** A sentence for each file that is not verified. */
  readonly problems: string[] = [];
  readonly #references: References;
  #arriving: Arriving | undefined;

  constructor(references: References) {
    this.#references = references;
  }

  /** Returns how many bytes came. */
  add({ window, batch, results, startedMs }: PulledBatch): number {
    let start = 0;
    let sum = 0;
    for (const [index, { file, offset, length }] of batch.entries()) {
      const { bytes = 0, problem } = results[index] ?? {};
      const arriving = (this.#arriving ??= { hash: createHash("sha256"), startedMs, bytes: 0, pulls: 0 });
      arriving.hash.update(window.memory.subarray(start, start + bytes));
      arriving.bytes += bytes;
      arriving.pulls++;
      arriving.problem ??= problem;
      if (offset + length === file.bytes) this.#complete(file, arriving);
      start += length;
      sum += bytes;
    }
    return sum;
  }

  #complete(file: RemoteFile, { hash, startedMs, bytes, pulls, problem }: Arriving): void {
    this.#arriving = undefined;
    const found = problem ?? this.#compare(file, bytes, hash.digest("hex"));
    if (found !== undefined) this.problems.push(`${file.path}: ${found}`);
    this.files.push({ path: file.path, bytes, pulls, elapsedMs: performance.now() - startedMs });
  }

  #compare({ path, bytes, modifiedMs }: RemoteFile, arrived: number, sha256: string): string | undefined {
    const reference = this.#references.get(path);
    if (reference === undefined) return "no reference, the file could not be read from the disk";
    if (arrived === bytes && sha256 === reference.sha256) return undefined;
    if (reference.modifiedMs !== modifiedMs) return "was changed while it was served";
    return `DIFFERS, ${arrived} of ${bytes} bytes came, SHA-256 ${sha256} instead of ${reference.sha256}`;
  }
}
