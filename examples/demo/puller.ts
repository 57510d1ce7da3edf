import { createHash } from "node:crypto";
import type { RemoteFile } from "./client.ts";
import { Progress } from "./progress.ts";
import type { References } from "./reference.ts";
import type { OpenWindow } from "./window.ts";

/** Files in flight at once, and the memory each of them has. A larger file comes through in several windows. */
const lanes = 4;
const windowBytes = 16 << 20;

export interface PullResult {
  readonly elapsedMs: number;
  readonly bytes: number;
  readonly verified: number;
  /** How many writes the server made, as far as it tells. */
  readonly writes: number;
  /** The longest that took more than one write, the longest first. */
  readonly longest: readonly PulledFile[];
  /** A sentence for each file that is not verified. */
  readonly problems: readonly string[];
}

export interface PulledFile {
  readonly path: string;
  readonly bytes: number;
  /** Beside the others that were under way. */
  readonly elapsedMs: number;
  readonly writes: number;
}

const longestKept = 3;

/**
 * Pulls every file through a fixed set of windows and compares the SHA-256 of what arrived with the disk's. A file that
 * cannot be had or differs is a problem to be told; a server that is gone ends it all.
 */
export async function pullAll(
  openWindow: OpenWindow,
  files: readonly RemoteFile[],
  references: References,
  title: string,
  signal: AbortSignal,
): Promise<PullResult> {
  const progress = new Progress(
    title,
    files.reduce((sum, file) => sum + file.bytes, 0),
  );
  const problems: string[] = [];
  const pulledFiles: PulledFile[] = [];
  const failed = new AbortController();
  const either = AbortSignal.any([signal, failed.signal]);
  const started = performance.now();
  let next = 0;

  const lane = async () => {
    await using window = await openWindow(windowBytes);
    for (;;) {
      const file = files[next++];
      if (file === undefined) return;
      either.throwIfAborted();
      const begun = performance.now();
      const hash = createHash("sha256");
      let offset = 0;
      let writes = 0;
      let problem: string | undefined;
      // Once for an empty file, too: that it can be opened over there is part of what is shown.
      do {
        const length = Math.min(windowBytes, file.bytes - offset);
        const pulled = await window.pull(file.path, offset, length, either);
        if (pulled.problem !== undefined) {
          problem = `${file.path}: ${pulled.problem}`;
          break;
        }
        hash.update(window.memory.subarray(0, pulled.bytes));
        offset += pulled.bytes;
        writes += pulled.writes;
        progress.add(pulled.bytes);
        if (pulled.bytes < length) break;
      } while (offset < file.bytes);
      problem ??= compare(file, offset, hash.digest("hex"), references);
      if (problem !== undefined) problems.push(problem);
      pulledFiles.push({ path: file.path, bytes: offset, elapsedMs: performance.now() - begun, writes });
    }
  };

  const work = Array.from({ length: lanes }, lane);
  try {
    await Promise.all(work);
  } catch (error) {
    // The other lanes end before their memory does.
    failed.abort(error);
    await Promise.allSettled(work);
    progress.clear();
    throw error;
  }
  progress.done();
  return {
    elapsedMs: performance.now() - started,
    bytes: pulledFiles.reduce((sum, file) => sum + file.bytes, 0),
    verified: files.length - problems.length,
    writes: pulledFiles.reduce((sum, file) => sum + file.writes, 0),
    longest: pulledFiles
      .filter(({ writes }) => writes > 1)
      .sort((a, b) => b.bytes - a.bytes)
      .slice(0, longestKept),
    problems,
  };
}

/** Several pulls of the same as one: the mean of their times, and of all else the worst. */
export function mean(results: readonly PullResult[]): PullResult {
  const [first, ...others] = results;
  if (first === undefined) throw new RangeError("the mean of nothing");
  return {
    ...first,
    elapsedMs: results.reduce((sum, one) => sum + one.elapsedMs, 0) / results.length,
    verified: Math.min(first.verified, ...others.map((one) => one.verified)),
    problems: results.flatMap((one) => one.problems),
  };
}

function compare(
  file: RemoteFile,
  bytes: number,
  sha256: string,
  references: References,
): string | undefined {
  const reference = references.get(file.path);
  if (reference === undefined) return `${file.path}: no reference, the file could not be read from the disk`;
  if (bytes === file.bytes && sha256 === reference.sha256) return undefined;
  if (reference.modifiedMs !== file.modifiedMs) return `${file.path}: was changed while it was served`;
  return `${file.path}: DIFFERS, ${bytes} of ${file.bytes} bytes came, SHA-256 ${sha256} instead of ${reference.sha256}`;
}
