import { batchesOf, type FilePiece } from "./batches.ts";
import type { RemoteFile } from "./client.ts";
import { Progress } from "./progress.ts";
import type { References } from "./reference.ts";
import { type PulledBatch, type PulledFile, Verifier } from "./verifier.ts";
import type { OpenWindow, Window } from "./window.ts";

/** Pulls in flight at once: while one is hashed here, others are read and written over there. */
const windowCount = 8;
const longestKept = 3;

export interface PullResult {
  readonly elapsedMs: number;
  readonly bytes: number;
  readonly verified: number;
  readonly pulls: number;
  /** The longest that took more than one pull, the longest first. */
  readonly longest: readonly PulledFile[];
  /** A sentence for each file that is not verified. */
  readonly problems: readonly string[];
}

/**
 * Pulls every file through a fixed set of windows and compares the SHA-256 of the received bytes with the disk's. A
 * file that is missing or differs is a problem to report; a lost server ends the run.
 */
export async function pullAll(
  openWindow: OpenWindow,
  files: readonly RemoteFile[],
  references: References,
  title: string,
  signal: AbortSignal,
): Promise<PullResult> {
  const bytes = files.reduce((sum, file) => sum + file.bytes, 0);
  const progress = new Progress(title, bytes);
  const verifier = new Verifier(references);
  const windows = await Promise.all(Array.from({ length: windowCount }, openWindow));
  const started = performance.now();
  let pulls = 0;
  try {
    for await (const pulled of pullInOrder(windows, batchesOf(files), signal)) {
      pulls++;
      progress.add(verifier.add(pulled));
    }
    progress.done();
  } catch (error) {
    progress.clear();
    throw error;
  } finally {
    await Promise.all(windows.map((window) => window[Symbol.asyncDispose]()));
  }
  return {
    elapsedMs: performance.now() - started,
    bytes: verifier.files.reduce((sum, file) => sum + file.bytes, 0),
    verified: files.length - verifier.problems.length,
    pulls,
    longest: verifier.files
      .filter((file) => file.pulls > 1)
      .sort((a, b) => b.bytes - a.bytes)
      .slice(0, longestKept),
    problems: verifier.problems,
  };
}

/**
 * Pulls into all windows at once and yields them in the order in which they were asked for. A window asks for its next
 * batch when the consumer comes back. When it ends, however it ends, no window is in use any more.
 */
async function* pullInOrder(
  windows: readonly Window[],
  batches: Iterator<FilePiece[], undefined>,
  signal: AbortSignal,
): AsyncGenerator<PulledBatch> {
  const over = new AbortController();
  const either = AbortSignal.any([signal, over.signal]);
  const underWay: Promise<PulledBatch>[] = [];
  const pullInto = (window: Window) => {
    const { value: batch } = batches.next();
    if (batch === undefined) return;
    const pulling = pullBatch(window, batch, either);
    pulling.catch(() => {}); // awaited in its turn; without this a failure before it would be an unhandled one
    underWay.push(pulling);
  };
  try {
    windows.forEach(pullInto);
    while (underWay.length > 0) {
      const pulled = await (underWay[0] as Promise<PulledBatch>);
      yield pulled;
      underWay.shift();
      pullInto(pulled.window);
    }
  } finally {
    over.abort();
    await Promise.allSettled(underWay);
  }
}

async function pullBatch(
  window: Window,
  batch: readonly FilePiece[],
  signal: AbortSignal,
): Promise<PulledBatch> {
  const startedMs = performance.now();
  const pieces = batch.map(({ path, offset, length }) => ({ path, offset, length }));
  const results = await window.pull(pieces, signal);
  return { window, batch, results, startedMs };
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
